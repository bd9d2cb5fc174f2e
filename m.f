ERROR tests/tail-2/inotify-rotate-resources.sh (exit status: 99)
ERROR: tests/tail-2/inotify-rotate-resources
ERROR: tests/tail-2/inotify-rotate-resources.sh
FAIL tests/du/threshold.sh (exit status: 1)
FAIL tests/misc/chroot-credentials.sh (exit status: 1)
FAIL tests/tail-2/inotify-dir-recreate.sh (exit status: 1)
FAIL: tests/du/threshold
FAIL: tests/du/threshold.sh
FAIL: tests/misc/chroot-credentials
FAIL: tests/misc/chroot-credentials.sh
FAIL: tests/tail-2/inotify-dir-recreate
FAIL: tests/tail-2/inotify-dir-recreate.sh
