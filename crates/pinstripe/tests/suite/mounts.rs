//! `up`, `down` and `mount` on the real kernel: what a user meets, also after crashes.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Place, Said, Server, can_mount, pin, run, signal, until};

fn write(place: &Place, name: &str, bytes: &[u8]) {
    std::fs::write(place.mnt.join(name), bytes).unwrap();
}

fn read(place: &Place, name: &str) -> Vec<u8> {
    std::fs::read(place.mnt.join(name)).unwrap()
}

fn synced(place: &Place, name: &str) {
    std::fs::File::open(place.mnt.join(name)).unwrap().sync_all().unwrap();
}

#[test]
fn up_and_down_keep_every_file() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    let said = p.up(&["--osts", "2"]).ok();
    for part in ["is mounted at", "1 MDT, 2 OSTs", "files in", "lfs getstripe", "pinstripe down"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let data: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
    write(&p, "large", &data);
    write(&p, "small", b"hello");
    let state = p.status();
    assert_eq!(state["state"], "up");
    assert_eq!(state["targets"].as_array().unwrap().len(), 3);
    assert_eq!(state["clients"].as_array().unwrap().len(), 1);
    let again = p.up(&[]).refused(1, &["already mounted by process", "pinstripe down"]);
    assert!(again.contains(&p.pid().to_string()), "{again}");
    let other = p.dir.path().join("other");
    let mut second = pin();
    second.arg("up").arg(&other).arg("--data").arg(&p.data).arg("--detach");
    Said::of(second.output().unwrap()).refused(1, &["in use by process"]);
    let mut fsck = pin();
    fsck.arg("fsck").arg("--data").arg(&p.data);
    Said::of(fsck.output().unwrap()).refused(1, &["in use by process"]);
    p.down().ok();
    assert!(!p.mounted());
    p.fsck().ok();

    p.up(&["--osts", "1"]).refused(2, &["holds 2 osts", "--osts 1"]);
    p.up(&["--fsname", "else"]).refused(2, &["'pin'", "--fsname"]);
    p.up(&["--osts", "3"]).ok();
    assert_eq!((read(&p, "large"), read(&p, "small")), (data, b"hello".to_vec()));
    assert_eq!(p.status()["targets"].as_array().unwrap().len(), 4);
    p.down().ok();
    p.down().refused(1, &["is not a Pinstripe mount"]);
    p.fsck().ok();
}

#[test]
fn a_killed_one_is_replaced_and_what_was_synced_is_there() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    p.up(&[]).ok();
    for round in 0..3 {
        let name = format!("f{round}");
        write(&p, &name, &vec![round; 150_000]);
        synced(&p, &name);
        signal(p.pid(), "-KILL");
        let mut status = pin();
        status.arg("status").arg(&p.mnt);
        until("its end", || !Said::of(status.output().unwrap()).err.is_empty());
        Said::of(status.output().unwrap()).refused(1, &["is down", "is gone"]);
        p.up(&[]).ok();
        for earlier in 0..=round {
            assert_eq!(read(&p, &format!("f{earlier}")), vec![earlier; 150_000]);
        }
    }
    // A dead mount is taken away, too.
    signal(p.pid(), "-KILL");
    until("the dead mount", || {
        std::fs::metadata(&p.mnt).is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN))
    });
    p.down().ok();
    assert!(!p.mounted());
    p.up(&[]).ok();
    p.down().ok();
    assert_eq!(p.fsck().code, 0, "{:?}", p.fsck());
}

#[test]
fn mount_points_that_cannot_be_used_are_refused() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    std::fs::create_dir(&p.mnt).unwrap();
    std::fs::write(p.mnt.join("precious"), "x").unwrap();
    p.up(&[]).refused(1, &["not empty"]);
    std::fs::remove_file(p.mnt.join("precious")).unwrap();
    std::fs::remove_dir(&p.mnt).unwrap();
    std::fs::write(&p.mnt, "a file").unwrap();
    p.up(&[]).refused(1, &["not a directory"]);
    std::fs::remove_file(&p.mnt).unwrap();
    p.up(&["-o", "frobnicate"]).refused(2, &["'frobnicate'"]);
    std::fs::create_dir(&p.data).unwrap();
    std::fs::write(p.data.join("thesis.tex"), "precious").unwrap();
    p.up(&[]).refused(1, &["thesis.tex", "empty directory"]);
    assert!(p.data.join("thesis.tex").exists());
    assert_eq!(std::fs::read_dir(&p.data).unwrap().count(), 1, "a refused start made something");
    assert!(!p.mnt.exists());
    std::fs::remove_file(p.data.join("thesis.tex")).unwrap();

    p.up(&[]).ok();
    let user = std::fs::File::create(p.mnt.join("open")).unwrap();
    let own = std::process::id().to_string();
    p.down().refused(1, &["is in use", &own, "--force"]);
    assert_eq!(p.status()["state"], "up");
    drop(user);
    p.down().ok();
    std::fs::rename(p.data.join("ost1"), p.data.join("aside")).unwrap();
    p.up(&[]).refused(1, &["OST0001 is missing", "ost1"]);
    std::fs::rename(p.data.join("ost2"), p.data.join("ost1")).unwrap();
    std::fs::rename(p.data.join("aside"), p.data.join("ost2")).unwrap();
    p.up(&[]).refused(1, &["OST0002, not OST0001"]);
}

#[test]
fn damaged_descriptions_are_refused_and_nothing_is_lost() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    p.up(&["--osts", "1"]).ok();
    write(&p, "f", b"kept");
    p.down().ok();
    for (file, newer) in [("pinstripe.json", r#"{"version":2}"#), ("mgs/MGS_LABEL", "")] {
        let path = p.data.join(file);
        let whole = std::fs::read(&path).unwrap();
        let mut damages =
            vec![b"noise, no more".to_vec(), whole[..whole.len() / 2].to_vec(), vec![]];
        if !newer.is_empty() {
            damages.push(newer.into());
        }
        for bytes in damages {
            std::fs::write(&path, &bytes).unwrap();
            let said = p.up(&[]);
            let name = Path::new(file).file_name().unwrap().to_str().unwrap();
            said.refused(1, &[name]);
            assert!(!p.mounted());
        }
        std::fs::write(&path, &whole).unwrap();
    }
    p.up(&[]).ok();
    assert_eq!(read(&p, "f"), b"kept");
    p.down().ok();
}

/// An empty store in its place would give old objects to new files.
#[test]
fn a_lost_store_is_refused_until_it_is_back() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    p.up(&["--osts", "1"]).ok();
    write(&p, "f", &[7; 200_000]);
    p.down().ok();
    let (store, aside) = (p.data.join("mdt0/store"), p.data.join("mdt0/aside"));
    std::fs::rename(&store, &aside).unwrap();
    p.up(&[]).refused(1, &["MDT0000", store.to_str().unwrap(), "Bring it back"]);
    assert!(!p.mounted() && !store.exists());
    std::os::unix::fs::symlink("/nowhere/store", &store).unwrap();
    p.up(&[]).refused(1, &["MDT0000", store.to_str().unwrap(), "Bring it back"]);
    let said = p.fsck();
    assert!(said.code == 1 && said.out.contains("store-lost"), "{said:?}");
    assert!(!said.out.contains("object-without-owner"), "{said:?}");
    std::fs::remove_file(&store).unwrap();
    std::fs::rename(&aside, &store).unwrap();
    p.up(&[]).ok();
    assert_eq!(read(&p, "f"), [7; 200_000]);
    p.down().ok();
    p.fsck().ok();
}

#[test]
fn a_first_start_that_was_killed_is_finished_by_the_next() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    let mut c = pin();
    c.arg("up").arg(&p.mnt).arg("--data").arg(&p.data).args(["--osts", "6"]);
    let mut child = c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("its second OST", || p.data.join("ost1").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(p.up(&[]).ok().contains("6 OSTs"));
    p.down().ok();
    p.fsck().ok();
}

/// Root finds the process of another user's mount, and waits for its end as that user's `down` does.
#[test]
fn root_ends_the_mount_of_another_user() {
    const USER: u32 = 65_534;
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let p = Place::new();
    let dir = p.dir.path();
    std::os::unix::fs::chown(dir, Some(USER), Some(USER)).unwrap();
    // The build directory may be closed to that user.
    let program = dir.join("pinstripe");
    let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_pinstripe")).arg(&program).status();
    assert!(copy.unwrap().success());
    let up = || {
        let mut c = Command::new(&program);
        c.arg("up").arg(&p.mnt).arg("--data").arg(&p.data).args(["--osts", "2", "--detach"]);
        c.env_remove("XDG_RUNTIME_DIR").uid(USER).gid(USER).current_dir("/");
        Said::of(c.output().unwrap())
    };
    let said = up();
    if said.err.contains("fusermount") {
        eprintln!("not tested: {}", said.err);
        return;
    }
    said.ok();
    for _ in 0..3 {
        assert_eq!(p.down().ok(), format!("{} is unmounted\n", p.mnt.display()));
        // Refused while the other process still runs.
        up().ok();
    }
    // Without its record nobody can wait for it; that is said.
    let records = std::fs::read_dir(format!("/tmp/pinstripe-{USER}")).unwrap();
    let names = |path: &Path| {
        std::fs::read_to_string(path).is_ok_and(|text| text.contains(p.mnt.to_str().unwrap()))
    };
    let record = records.map(|e| e.unwrap().path()).find(|path| names(path)).unwrap();
    std::fs::remove_file(record).unwrap();
    let status = Said::of(pin().arg("status").arg(&p.mnt).output().unwrap());
    status.refused(1, &["was mounted by user 65534", "only that user"]);
    let said = p.down();
    assert!(said.code == 0 && said.err.contains("may still be storing"), "{said:?}");
    let lock = p.data.join("run/lock");
    until("its end", || std::fs::File::open(&lock).unwrap().try_lock().is_ok());
}

#[test]
fn in_the_foreground_ctrl_c_ends_it() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    let mut c = pin();
    c.arg("up").arg(&p.mnt).arg("--data").arg(&p.data).args(["--osts", "1"]);
    let mut child = c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the mount", || p.mounted());
    until("its record", || run(&["status", p.mnt.to_str().unwrap()]).code == 0);
    write(&p, "f", b"kept");
    signal(child.id(), "-INT");
    assert!(child.wait().unwrap().success());
    assert!(!p.mounted());
    p.up(&[]).ok();
    assert_eq!(read(&p, "f"), b"kept");
    // umount(8) ends it as well.
    let pid = p.pid();
    assert!(Command::new("umount").arg(&p.mnt).status().unwrap().success());
    until("its end", || !Path::new(&format!("/proc/{pid}")).exists());
    p.fsck().ok();
}

#[test]
fn separate_clients_share_the_files_of_separate_servers() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    let at = |name: &str| p.dir.path().join(name).to_str().unwrap().to_string();
    let (key, mgs, mdt, ost) = (at("key"), at("mgs"), at("mdt"), at("ost"));
    run(&["format", "--mgs", &mgs, "--mdt", &mdt, "--ost", &ost, "--key", &key]).ok();
    let listen = ["--listen", "127.0.0.1:0", "--key", &key];
    let words = ["--mgs", "--mgs-dir", &mgs, "--mdt", &mdt, "--ost", &ost];
    let server = Server::start(&[&words[..], &listen].concat());
    let (one, two) = (Place::new(), Place::new());
    for place in [&one, &two] {
        std::fs::create_dir(&place.mnt).unwrap();
        let mnt = place.mnt.to_str().unwrap();
        let said = run(&["mount", &server.address, mnt, "--key", &key]).ok();
        assert!(said.contains("is mounted at"), "{said}");
    }
    std::fs::create_dir(one.mnt.join("d")).unwrap();
    write(&one, "d/f", b"written by one");
    assert_eq!(read(&two, "d/f"), b"written by one");
    let state = two.status();
    assert_eq!(state["clients"].as_array().unwrap().len(), 2);
    assert_eq!(state["pids"].as_array().unwrap().len(), 3, "{}", state["pids"]);
    one.down().ok();
    let sub = format!("{}:/d", server.address);
    run(&["mount", &sub, one.mnt.to_str().unwrap(), "--key", &key]).ok();
    assert_eq!(read(&one, "f"), b"written by one");
    let absent = format!("{}:/absent", server.address);
    let third = at("third");
    std::fs::create_dir(&third).unwrap();
    run(&["mount", &absent, &third, "--key", &key]).refused(1, &["absent"]);
    run(&["mount", &server.address, &third, "--key", "/nowhere"]).refused(1, &["/nowhere"]);
    one.down().ok();
    two.down().ok();
    server.stop();
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let words = ["mount", &free, &third, "--key", &key, "--wait", "1"];
    run(&words).refused(1, &[&free, "waited 1 s"]);
    let fsck = ["fsck", "--mdt", &mdt, "--ost", &ost, "--data-too"];
    assert!(run(&fsck).ok().contains("clean"));
}

/// As mount(8) calls its helpers, for fstab(5).
#[test]
fn mount_finds_a_helper_by_its_name() {
    if !can_mount() {
        return;
    }
    let (p, q) = (Place::new(), Place::new());
    p.up(&["--osts", "1"]).ok();
    write(&p, "f", b"seen");
    std::fs::create_dir(&q.mnt).unwrap();
    let helper = q.dir.path().join("mount.pinstripe");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pinstripe"), &helper).unwrap();
    let socket = format!("unix:{}", p.data.join("run/pinstripe.sock").display());
    let call = |address: &str, words: &[&str]| {
        let mut c = std::process::Command::new(&helper);
        c.arg(address).arg(&q.mnt).args(words).env_remove("PINSTRIPE_KEY");
        Said::of(c.output().unwrap())
    };
    assert_eq!(call(&socket, &["-o", "frobnicate"]).code, 1);
    assert_eq!(call(&format!("{socket}.none"), &["-o", "wait=1"]).code, 32);
    call(&socket, &["-f", "-o", "ro"]).ok();
    assert!(!q.mounted());
    let options = "rw,_netdev,nofail,x-systemd.automount,noatime,wait=20";
    let said = call(&socket, &["-n", "-t", "pinstripe", "-o", options]).ok();
    assert_eq!(said, "", "mount(8) says nothing");
    assert_eq!(read(&q, "f"), b"seen");
    let pids = q.status()["pids"].clone();
    // `mount -a` asks for all lines again.
    call(&socket, &["-o", options]).ok();
    assert_eq!(q.status()["pids"], pids, "it was mounted once more");
    let other = format!("{socket}:/");
    for (address, words) in [(&other, options), (&socket, "ro"), (&socket, "remount,ro")] {
        let said = call(address, &["-o", words]);
        assert!(matches!(said.code, 1 | 32), "something else is mounted there: {said:?}");
    }
    q.down().ok();
    p.down().ok();
}

/// Whose servers are gone is taken away all the same.
#[test]
fn a_mount_whose_servers_are_gone_can_be_ended() {
    if !can_mount() {
        return;
    }
    let (p, q) = (Place::new(), Place::new());
    p.up(&["--mdts", "2", "--osts", "1", "--listen", "127.0.0.1:0"]).ok();
    std::fs::create_dir(&q.mnt).unwrap();
    let socket = format!("unix:{}", p.data.join("run/pinstripe.sock").display());
    run(&["mount", &socket, q.mnt.to_str().unwrap(), "-o", "noforward_sync"]).ok();
    write(&p, "f", b"seen");
    assert_eq!(read(&q, "f"), b"seen");
    let pids = q.status()["pids"].as_array().unwrap().len();
    assert_eq!(pids, 2);
    p.down().ok();
    let state = q.status();
    assert_eq!(state["state"], "degraded", "{state}");
    let text = Said::of(pin().arg("status").arg(&q.mnt).output().unwrap()).out;
    let why = state["error"].as_str().unwrap();
    assert!(text.contains("is degraded") && text.contains(why), "{why} is missing in\n{text}");
    let forced = pin().args(["down", "--force"]).arg(&q.mnt).output().unwrap();
    Said::of(forced).ok();
    assert!(!q.mounted());
    p.fsck().ok();
}

#[test]
fn without_data_the_place_follows_the_mount_point() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    let state = p.dir.path().join("state");
    let up = |more: &[&str]| {
        let mut c = pin();
        c.env("XDG_STATE_HOME", &state).arg("up").arg(&p.mnt).args(["--detach"]).args(more);
        Said::of(c.output().unwrap())
    };
    let said = up(&["--osts", "1", "--json"]).ok();
    let facts: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(Path::new(facts["data"].as_str().unwrap()).starts_with(state.canonicalize().unwrap()));
    write(&p, "f", b"kept");
    p.down().ok();
    up(&[]).ok();
    assert_eq!(read(&p, "f"), b"kept");
    p.down().ok();
}

#[test]
fn parameters_of_targets_are_set_within_their_range() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    p.up(&["--osts", "1"]).ok();
    let mnt = p.mnt.to_str().unwrap();
    let get = |name: &str| run(&["get_param", name, "--mount", mnt]).ok();
    let set = |text: &str| run(&["set_param", text, "--mount", mnt]);
    for (name, value, wrong) in [
        ("MDT0000.recall_timeout_s", "45", ["19", "601", "soon"]),
        ("OST0000.direct_write_min_kb", "512", ["4097", "-1", "1k"]),
        ("OST0000.reads_in_flight_kb", "4096", ["63", "1048577", "8M"]),
    ] {
        let before = get(name);
        for wrong in wrong {
            set(&format!("{name}={wrong}")).refused(1, &[wrong, name]);
        }
        assert_eq!(get(name), before);
        set(&format!("{name}={value}")).ok();
        assert_eq!(get(name), format!("{name}={value}\n"));
    }
    set("OST0000.recall_timeout_s=30").refused(1, &["OST0000.recall_timeout_s"]);
    let words = ["set_param", "log.level=debug", "OST0000.nonsense=1", "--mount", mnt];
    run(&words).refused(1, &["OST0000.nonsense"]);
    assert_eq!(get("log.level"), "log.level=warn\n", "all or nothing");
    p.down().ok();
}
