FAIL tests/misc/chroot-credentials.sh (exit status: 1)
FAIL: tests/misc/chroot-credentials
FAIL: tests/misc/chroot-credentials.sh
