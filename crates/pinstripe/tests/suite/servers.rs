//! Servers as separate processes: the list of targets, its refusals, restarts, signals.

use std::path::Path;
use std::process::Command;

use crate::common::{Server, run, run_bounded, until};

struct Cluster {
    dir: tempfile::TempDir,
    key: String,
}

impl Cluster {
    fn new() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key").to_str().unwrap().to_string();
        let c = Cluster { dir, key };
        let (mgs, mdt, ost) = (c.at("mgs"), c.at("mdt"), c.at("ost"));
        run(&["format", "--mgs", &mgs, "--mdt", &mdt, "--ost", &ost, "--key", &c.key]).ok();
        c
    }
    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_string()
    }
    fn copy(&self, name: &str) -> String {
        let copy = self.at(&format!("{name}.copy"));
        let done = Command::new("cp").args(["-a", &self.at(name), &copy]).status().unwrap();
        assert!(done.success());
        copy
    }
    fn server(&self, words: &[&str]) -> Server {
        let tail = ["--listen", "127.0.0.1:0", "--key", &self.key];
        Server::start(&[words, &tail].concat())
    }
    fn refused(&self, words: &[&str], parts: &[&str]) {
        let tail = ["--listen", "127.0.0.1:0", "--key", &self.key];
        run_bounded(&[&["server"], words, &tail].concat()).refused(1, parts);
    }
    fn status(&self, mgs: &str) -> serde_json::Value {
        let said = run(&["status", "--json", "--mgs-addr", mgs, "--key", &self.key]);
        serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
    }
    fn until_up(&self, mgs: &str) -> serde_json::Value {
        until("the file system", || self.status(mgs)["state"] == "up");
        self.status(mgs)
    }
}

fn address(state: &serde_json::Value, target: &str) -> String {
    let targets = state["targets"].as_array().unwrap();
    let found = targets.iter().find(|t| t["name"] == target).unwrap();
    found["address"].as_str().unwrap().to_string()
}

#[test]
fn servers_find_each_other_and_survive_restarts() {
    let c = Cluster::new();
    let (mgs_dir, mdt_dir, ost_dir) = (c.at("mgs"), c.at("mdt"), c.at("ost"));
    let mgs = c.server(&["--mgs", "--mgs-dir", &mgs_dir]);
    let at = mgs.address.clone();
    let mdt = c.server(&["--mdt", &mdt_dir, "--mgs-addr", &at]);
    let ost = c.server(&["--ost", &ost_dir, "--mgs-addr", &at]);
    let state = c.until_up(&at);
    assert_eq!(state["fs"]["name"], "pin");
    assert_eq!(state["pids"].as_array().unwrap().len(), 3);
    assert_eq!(address(&state, "MDT0000"), mdt.address);
    let old = address(&state, "OST0000");

    // An OST that was killed is seen to be down, and comes back elsewhere.
    ost.kill();
    until("the loss", || c.status(&at)["state"] == "degraded");
    let said = run(&["status", "--mgs-addr", &at, "--key", &c.key]);
    assert!(said.code == 1 && said.out.contains("OST0000   down"), "{said:?}");
    let ost = c.server(&["--ost", &ost_dir, "--mgs-addr", &at]);
    assert_ne!(address(&c.until_up(&at), "OST0000"), old);

    // The management service was killed: its list is there when it is back.
    mgs.kill();
    let listen = at.strip_prefix("tcp:").unwrap().to_string();
    let words = ["--mgs", "--mgs-dir", &mgs_dir, "--listen", &listen, "--key", &c.key];
    let mgs = Server::start(&words);
    let state = c.until_up(&at);
    assert_eq!(address(&state, "OST0000"), ost.address);
    for server in [ost, mdt, mgs] {
        server.stop();
    }
    let fsck = ["fsck", "--mdt", &mdt_dir, "--ost", &ost_dir, "--data-too"];
    assert!(run(&fsck).ok().contains("clean"));
}

#[test]
fn what_does_not_belong_is_refused_by_name() {
    let c = Cluster::new();
    let (mgs_dir, mdt_dir, ost_dir) = (c.at("mgs"), c.at("mdt"), c.at("ost"));
    let mgs = c.server(&["--mgs", "--mgs-dir", &mgs_dir, "--mdt", &mdt_dir, "--ost", &ost_dir]);
    let at = mgs.address.as_str();

    let twin = c.at("twin");
    run(&["format", "--ost", &twin, "--key", &c.key]).ok();
    c.refused(&["--ost", &twin, "--mgs-addr", at], &["OST0000", "another identity"]);

    let stranger = c.at("stranger");
    run(&["format", "--ost", &stranger, "--fsname", "other", "--key", &c.key]).ok();
    c.refused(&["--ost", &stranger, "--mgs-addr", at], &["OST0000", "another file system"]);
    c.refused(&["--ost", &stranger, "--ost", &twin, "--mgs-addr", at], &["OST0000", "duplicate"]);
    let third = c.at("third");
    run(&["format", "--mdt", &third, "--fsname", "other", "--key", &c.key]).ok();
    c.refused(&["--mdt", &third, "--ost", &twin, "--mgs-addr", at], &["another file system"]);

    c.refused(&["--ost", &ost_dir, "--mgs-addr", at], &["OST0000"]);
    c.refused(&["--mgs", "--mgs-dir", &mgs_dir], &["in use by another server"]);
    c.refused(&["--ost", &c.at("nothing"), "--mgs-addr", at], &["nothing"]);
    c.refused(&["--mgs", "--mgs-dir", &c.at("nothing")], &["not prepared", "pinstripe format"]);
    c.refused(&["--mdt", &ost_dir, "--mgs-addr", at], &["ost"]);

    let other = c.at("other-key");
    run(&["format", "--ost", &c.at("o9"), "--index", "9", "--key", &other]).ok();
    let words = ["status", "--mgs-addr", at, "--key", &other];
    run(&words).refused(1, &["key"]);
    let words = ["status", "--mgs-addr", at, "--key", "/nowhere/key"];
    run(&words).refused(1, &["/nowhere/key", "--key FILE"]);
    let words = [
        "server",
        "--ost",
        &c.at("o9"),
        "--mgs-addr",
        at,
        "--listen",
        "127.0.0.1:0",
        "--key",
        &other,
    ];
    run(&words).refused(1, &["key"]);
    assert_eq!(c.status(at)["targets"].as_array().unwrap().len(), 2);
}

/// What a copied directory holds is the same target: while one is served, no other is.
#[test]
fn a_copy_of_a_target_that_is_served_is_refused() {
    let c = Cluster::new();
    let (mgs_dir, mdt_dir, ost_dir) = (c.at("mgs"), c.at("mdt"), c.at("ost"));
    let (ost_copy, mdt_copy) = (c.copy("ost"), c.copy("mdt"));
    let mgs = c.server(&["--mgs", "--mgs-dir", &mgs_dir]);
    let at = mgs.address.clone();
    let mdt = c.server(&["--mdt", &mdt_dir, "--mgs-addr", &at]);
    let ost = c.server(&["--ost", &ost_dir, "--mgs-addr", &at]);
    c.until_up(&at);
    let refused = || {
        let served = ["OST0000 is already served at", &ost.address, "stop that server"];
        c.refused(&["--ost", &ost_copy, "--mgs-addr", &at], &served);
        let served = ["MDT0000 is already served at", &mdt.address, "stop that server"];
        c.refused(&["--mdt", &mdt_copy, "--mgs-addr", &at], &served);
        let state = c.status(&at);
        assert_eq!(address(&state, "OST0000"), ost.address);
        assert_eq!(address(&state, "MDT0000"), mdt.address);
    };
    refused();

    // A management service that was just started knows it as well, and one that lost its list takes
    // the same servers again.
    mgs.kill();
    let listen = at.strip_prefix("tcp:").unwrap().to_string();
    let words = ["--mgs", "--mgs-dir", &mgs_dir, "--listen", &listen, "--key", &c.key];
    let mgs = Server::start(&words);
    refused();
    mgs.kill();
    std::fs::remove_file(Path::new(&mgs_dir).join("targets")).unwrap();
    let _mgs = Server::start(&words);
    c.until_up(&at);
    refused();

    // The one that is served is the target, whichever directory it was.
    ost.kill();
    let ost = c.server(&["--ost", &ost_copy, "--mgs-addr", &at]);
    assert_eq!(address(&c.until_up(&at), "OST0000"), ost.address);
    c.refused(&["--ost", &ost_dir, "--mgs-addr", &at], &["already served at", &ost.address]);
}

#[test]
fn a_target_moves_away_from_where_nobody_serves_it() {
    let c = Cluster::new();
    let (mgs_dir, ost_dir) = (c.at("mgs"), c.at("ost"));
    let mgs = c.server(&["--mgs", "--mgs-dir", &mgs_dir, "--mdt", &c.at("mdt")]);
    let serve = |more: &[&str]| {
        c.server(&[&["--ost", &ost_dir, "--mgs-addr", &mgs.address], more].concat())
    };
    let is_at = |ost: &Server| {
        assert_eq!(address(&c.status(&mgs.address), "OST0000"), ost.address);
        ost.address.strip_prefix("tcp:").unwrap().to_string()
    };
    // Nobody answers there any more, as on a machine that hangs or is lost.
    let ost = serve(&[]);
    let old = is_at(&ost);
    ost.kill();
    let silent = std::net::TcpListener::bind(&old).unwrap();
    let ost = serve(&[]);
    let old = is_at(&ost);
    drop(silent);
    // Another target's server is there now.
    ost.kill();
    run(&["format", "--ost", &c.at("o1"), "--index", "1", "--key", &c.key]).ok();
    let words = ["--ost", &c.at("o1"), "--mgs-addr", &mgs.address, "--key", &c.key];
    let _other = Server::start(&[&words[..], &["--listen", &old]].concat());
    let ost = serve(&[]);
    let old = is_at(&ost);
    // The same process listens there, too, and tells another address than before.
    ost.stop();
    let words = ["--ost", &ost_dir, "--mgs-addr", &mgs.address, "--key", &c.key];
    let ost = Server::start(&[&words[..], &["--listen", "127.0.0.1:0", "--listen", &old]].concat());
    assert_ne!(is_at(&ost), old);
}

/// A file system that was copied with its management service is another one.
#[test]
fn a_copy_of_a_whole_file_system_can_be_served_beside_it() {
    let c = Cluster::new();
    let serve = |mgs: &str, mdt: &str, ost: &str| {
        c.server(&["--mgs", "--mgs-dir", mgs, "--mdt", mdt, "--ost", ost])
    };
    let (mdt, ost) = (c.copy("mdt"), c.copy("ost"));
    let one = serve(&c.at("mgs"), &c.at("mdt"), &c.at("ost"));
    c.until_up(&one.address);
    // Its list names the servers of the first.
    let two = serve(&c.copy("mgs"), &mdt, &ost);
    for server in [&one, &two] {
        assert_eq!(address(&c.until_up(&server.address), "OST0000"), server.address);
    }
}

#[test]
fn an_absent_management_service_is_waited_for_in_bounds() {
    let c = Cluster::new();
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ost = c.at("ost");
    let words = ["--ost", &ost, "--mgs-addr", &free, "--mgs-wait", "1"];
    c.refused(&words, &[&free, "waited 1 s", "Is that server running"]);
}

#[test]
fn targets_are_formatted_on_first_use_only_if_asked() {
    let c = Cluster::new();
    let (a, b) = (c.at("a/ost"), c.at("a/mgs"));
    std::fs::create_dir(Path::new(&a).parent().unwrap()).unwrap();
    c.refused(&["--mgs", "--ost", &a], &["pinstripe format"]);
    let server = c.server(&["--mgs", "--ost", &a, "--format", "--index", "5"]);
    assert!(Path::new(&b).is_dir(), "the MGS lies beside the first target");
    let state = c.status(&server.address);
    assert_eq!(state["targets"][0]["name"], "OST0005");
    server.stop();
    let server = c.server(&["--mgs", "--ost", &a, "--format", "--index", "5"]);
    assert_eq!(c.status(&server.address)["targets"][0]["name"], "OST0005");
    server.stop();
    std::fs::write(c.at("full"), "x").unwrap();
    c.refused(&["--mgs", "--ost", &c.at("full"), "--format"], &["full"]);
}

#[test]
fn parameters_are_read_and_set_by_name() {
    let c = Cluster::new();
    let mgs_dir = c.at("mgs");
    let mgs = c.server(&["--mgs", "--mgs-dir", &mgs_dir]);
    let ask = |words: &[&str]| {
        let tail = ["--mgs-addr", &mgs.address, "--key", &c.key];
        run(&[words, &tail].concat())
    };
    assert!(ask(&["get_param", "net.*"]).ok().contains("net.sessions="));
    assert_eq!(ask(&["get_param", "log.level"]).ok(), "log.level=warn\n");
    ask(&["set_param", "log.level=debug"]).ok();
    assert_eq!(ask(&["get_param", "log.level"]).ok(), "log.level=debug\n");
    let e = ask(&["set_param", "log.level=info", "log.levle=info"]);
    e.refused(1, &["no parameter log.levle", "did you mean log.level?"]);
    assert_eq!(ask(&["get_param", "log.level"]).ok(), "log.level=debug\n", "all or nothing");
    ask(&["set_param", "process.pid=1"]).refused(1, &["can only be read"]);
    ask(&["get_param", "nonsense"]).refused(1, &["nonsense"]);
}

#[test]
fn parameters_of_targets_are_with_the_processes_that_serve_them() {
    let c = Cluster::new();
    let (mgs_dir, mdt_dir, ost_dir) = (c.at("mgs"), c.at("mdt"), c.at("ost"));
    let mgs = c.server(&["--mgs", "--mgs-dir", &mgs_dir]);
    let mdt = c.server(&["--mdt", &mdt_dir, "--mgs-addr", &mgs.address]);
    let ost = c.server(&["--ost", &ost_dir, "--mgs-addr", &mgs.address]);
    c.until_up(&mgs.address);
    let ask = |address: &str, words: &[&str]| {
        run(&[words, &["--mgs-addr", address, "--key", &c.key]].concat())
    };
    let name = "OST0000.direct_write_min_kb";
    ask(&mgs.address, &["get_param", name]).ok();
    let set = ask(&mgs.address, &["set_param", &format!("{name}=512")]).ok();
    assert_eq!(set, format!("{name}=512\n"));
    assert_eq!(ask(&ost.address, &["get_param", name]).ok(), set);
    let both = ask(&mgs.address, &["get_param", "MDT0000.*", "OST0000*", "log.level"]).ok();
    for part in ["MDT0000.recall_timeout_s=", "OST0000.direct_write_min_kb=512", "log.level=warn"] {
        assert!(both.contains(part), "{part} is missing in\n{both}");
    }
    let counted = ask(&mgs.address, &["get_param", "obdfilter.OST0000.*"]).ok();
    for part in ["obdfilter.OST0000.stats.write=0", "obdfilter.OST0000.checksums_bad=0"] {
        assert!(counted.contains(part), "{part} is missing in\n{counted}");
    }
    // The OST's server has asked how it is, the MDT has asked its own.
    let counted = ask(&mgs.address, &["get_param", "mdt.MDT0000.*"]).ok();
    assert!(counted.contains("mdt.MDT0000.stats.Status="), "{counted}");
    ask(&mgs.address, &["get_param", "OST0000.nonsense"]).refused(1, &["OST0000.nonsense"]);
    ask(&mgs.address, &["get_param", "OST0007.free"]).refused(1, &["no target OST0007"]);
    for wrong in ["OST0000.direct_write_min_kb=1k", "OST0000.nonsense=1", "MDT0000.nonsense=1"] {
        let words = ["set_param", "log.level=debug", &format!("{name}=256"), wrong];
        ask(&mgs.address, &words).refused(1, &[wrong.split_once('=').unwrap().0]);
        assert_eq!(ask(&ost.address, &["get_param", name]).ok(), set, "all or nothing");
        assert_eq!(ask(&mgs.address, &["get_param", "log.level"]).ok(), "log.level=warn\n");
    }
    ost.kill();
    ask(&mgs.address, &["get_param", name]).refused(1, &["OST0000", "cannot reach"]);
    mdt.stop();
    mgs.stop();
}

#[test]
fn unix_sockets_need_no_key() {
    use std::os::unix::fs::PermissionsExt;
    let c = Cluster::new();
    let run_dir = c.dir.path().join("run");
    std::fs::create_dir(&run_dir).unwrap();
    std::fs::set_permissions(&run_dir, PermissionsExt::from_mode(0o700)).unwrap();
    let socket = format!("unix:{}", run_dir.join("s").display());
    let (mgs, mdt, ost) = (c.at("mgs"), c.at("mdt"), c.at("ost"));
    let words = ["--mgs", "--mgs-dir", &mgs, "--mdt", &mdt, "--ost", &ost, "--listen", &socket];
    let server = Server::start(&words);
    assert_eq!(server.address, socket);
    let state = run(&["status", "--json", "--mgs-addr", &socket]).ok();
    assert!(state.contains("OST0000"));
    server.stop();
}
