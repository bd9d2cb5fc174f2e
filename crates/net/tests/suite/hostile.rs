//! Peers that lie, babble, stall or have no key (invariant 12): only their own connection suffers.

use crate::common::*;
use pinstripe_net::*;
use proptest::prelude::*;
use proto::frame::{F_REPLY, Header};
use proto::mgs::{Hello, Welcome};
use proto::{Wire, ops};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

pub fn dial(w: &World) -> TcpStream {
    let Endpoint::Tcp(address) = &w.endpoint else { panic!("{:?}", w.endpoint) };
    let s = TcpStream::connect(address).unwrap();
    s.set_read_timeout(Some(PATIENCE)).unwrap();
    s
}

pub fn hello() -> Hello {
    Hello {
        min_version: proto::WIRE_VERSION,
        max_version: proto::WIRE_VERSION,
        client: [5; 16],
        fs: [7; 16],
        target: "MDT0000".into(),
        features: 0,
        description: "raw".into(),
        resume: 0,
    }
}

fn connect_frame(hello: &Hello) -> Vec<u8> {
    encode_frame(Header::request(ops::session::CONNECT, 0), &hello.to_bytes(), &[])
}

pub fn read_frame(s: &mut TcpStream) -> (Header, Vec<u8>) {
    let mut head = [0; 64];
    s.read_exact(&mut head).unwrap();
    let header = *Header::parse(&head).unwrap();
    let mut rest = vec![0; (header.body_len.get() + header.bulk_len.get()) as usize];
    s.read_exact(&mut rest).unwrap();
    rest.truncate(header.body_len.get() as usize);
    (header, rest)
}

/// A raw connection with a session of its own.
fn raw_session(w: &World) -> (TcpStream, Welcome) {
    let mut s = dial(w);
    s.write_all(&connect_frame(&hello())).unwrap();
    let (header, body) = read_frame(&mut s);
    assert_eq!(header.status.get(), 0);
    (s, Welcome::from_bytes(&body).unwrap())
}

pub fn is_closed(s: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match s.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn what_is_no_greeting_closes_the_connection() {
    let w = World::new(Kind::Tcp, quick());
    let good = w.connect(options());
    let mut crc = connect_frame(&hello());
    crc[60] ^= 1;
    let mut version = connect_frame(&hello());
    version[3] = 9;
    let bad = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0],
        vec![0xff; 4096],
        crc,
        version,
        encode_frame(Header::request(ops::session::PING, 0), &[], &[]),
        encode_frame(Header::request(ops::session::CONNECT, 0), &[0; 5000], &[]),
        encode_frame(Header::request(ops::session::CONNECT, 0), &[], &[0; 10]),
    ];
    for bytes in &bad {
        let mut s = dial(&w);
        s.write_all(bytes).unwrap();
        assert!(is_closed(&mut s), "{:02x?}", &bytes[..bytes.len().min(16)]);
        good.call(ECHO, vec![], vec![]).unwrap();
    }
    until("they are counted", || w.server.stats().bad_frames == bad.len() as u64);
    // Readable, but not acceptable: told why.
    let mut s = dial(&w);
    s.write_all(&encode_frame(Header::request(ops::session::CONNECT, 0), b"xx", &[])).unwrap();
    let (header, body) = read_frame(&mut s);
    assert!(header.status.get() != 0 && String::from_utf8_lossy(&body).contains("greeting"));
    let mut s = dial(&w);
    s.write_all(&connect_frame(&Hello { min_version: 7, max_version: 9, ..hello() })).unwrap();
    let (_, body) = read_frame(&mut s);
    assert_eq!(
        String::from_utf8_lossy(&body),
        "wire versions 7 to 9 are not spoken here (this server speaks 3)"
    );
    assert!(is_closed(&mut s));
}

#[test]
fn another_wire_version_is_named_to_both() {
    let w = World::new(Kind::Tcp, quick());
    let mut newer = connect_frame(&hello());
    newer[3] = proto::WIRE_VERSION + 1;
    let mut s = dial(&w);
    s.write_all(&newer).unwrap();
    // Read whole, although the server has not read all that was sent.
    let (header, body) = read_frame(&mut s);
    assert_eq!((header.version, header.status.get() != 0), (proto::WIRE_VERSION, true));
    let text = String::from_utf8(body).unwrap();
    let both = [proto::WIRE_VERSION + 1, proto::WIRE_VERSION].map(|v| format!("version {v}"));
    assert!(text.contains(&both[0]) && text.contains("same release"), "{text}");
    drop(s);
    until("it is counted", || w.server.stats().bad_frames == 1);

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let server = std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        s.read_exact(&mut [0; 64]).unwrap();
        let refusal = Header::request(ops::session::CONNECT, 0).reply(-71);
        let mut bytes = encode_frame(refusal, b"no", &[]);
        bytes[3] = proto::WIRE_VERSION + 1;
        s.write_all(&bytes).unwrap();
        // Until the client goes.
        let _ = s.read_to_end(&mut Vec::new());
    });
    let e = Session::connect(&endpoint, options()).err().unwrap();
    assert_eq!(e, NetError::Version { theirs: proto::WIRE_VERSION + 1 });
    assert!(e.to_string().contains(&both[0]), "{e}");
    server.join().unwrap();
}

#[test]
fn a_session_that_breaks_the_rules_loses_its_connection() {
    let w = World::new(Kind::Tcp, ServerOptions { credits: 3, ..quick() });
    let good = w.connect(options());
    let frame = |session: u64, opcode: u16, flags: u16, xid: u64| {
        let mut h = Header::request(opcode, xid);
        h.session = session.into();
        h.flags = flags.into();
        encode_frame(h, &[], &[])
    };
    type Bytes = Box<dyn Fn(u64) -> Vec<u8>>;
    let bad: Vec<(&str, Bytes)> = vec![
        ("another session", Box::new(move |s| frame(s + 1, ECHO, 0, 1))),
        ("a second greeting", Box::new(move |s| frame(s, ops::session::CONNECT, 0, 1))),
        ("a reply to nothing", Box::new(move |s| frame(s, ECHO, F_REPLY, 1))),
        ("a call-back", Box::new(move |s| frame(s, ECHO, proto::frame::F_CALLBACK, 1))),
        ("no credits", Box::new(move |s| (1..9).flat_map(|x| frame(s, HOLD, 0, x)).collect())),
        ("garbage", Box::new(|_| vec![0x55; 100])),
    ];
    let count = bad.len() as u64;
    for (what, bytes) in bad {
        let (mut s, welcome) = raw_session(&w);
        s.write_all(&bytes(welcome.session)).unwrap();
        assert!(is_closed(&mut s), "{what}");
        good.call(ECHO, vec![], vec![]).unwrap();
    }
    until("they are counted", || w.server.stats().bad_frames == count);
    assert!(w.target.most_held.load(SeqCst) <= 3);
    w.target.release();
}

#[test]
fn a_half_frame_and_silence_are_not_waited_for() {
    let o = ServerOptions {
        handshake_timeout: Duration::from_millis(30),
        idle_timeout: Duration::from_millis(100),
        session_grace: Duration::from_millis(20),
        ..quick()
    };
    let w = World::new(Kind::Tcp, o);
    let alive = ConnectOptions { ping_interval: Duration::from_millis(10), ..options() };
    let good = w.connect(alive);
    let mut silent = dial(&w);
    assert!(is_closed(&mut silent));
    let mut half = dial(&w);
    half.write_all(&connect_frame(&hello())[..40]).unwrap();
    assert!(is_closed(&mut half));
    // A session that stops in mid-frame, and one that just says nothing.
    let (mut stuck, welcome) = raw_session(&w);
    let mut h = Header::request(ECHO, 1);
    h.session = welcome.session.into();
    stuck.write_all(&encode_frame(h, &[1; 100], &[])[..90]).unwrap();
    let (mut mute, _) = raw_session(&w);
    assert!(is_closed(&mut stuck) && is_closed(&mut mute));
    until("their sessions end", || w.server.stats().sessions == 1);
    assert_eq!(*w.target.closed.lock(), [Closed::Lost, Closed::Lost]);
    assert_eq!((w.server.stats().silent, good.stats().lost), (2, 0));
}

#[test]
fn a_server_that_falls_silent_is_left() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let accept = std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        let (header, _) = read_frame(&mut s);
        let welcome = Welcome {
            session: 9,
            epoch: 1,
            version: proto::WIRE_VERSION,
            features: 0,
            credits: 4,
            resumed: false,
            data: vec![],
        };
        s.write_all(&encode_frame(header.reply(0), &welcome.to_bytes(), &[])).unwrap();
        // Reads pings, answers none, until the client gives up.
        assert!(is_closed(&mut s));
    });
    let o = ConnectOptions {
        ping_interval: Duration::from_millis(10),
        ping_timeout: Duration::from_millis(60),
        reconnect: false,
        ..options()
    };
    let s = Session::connect(&endpoint, o).unwrap();
    match s.call(ECHO, vec![], vec![]) {
        Err(NetError::Lost(text)) => assert!(text.contains("silent"), "{text}"),
        other => panic!("{other:?}"),
    }
    accept.join().unwrap();
}

#[test]
fn a_client_that_does_not_read_is_not_served_on() {
    let w = World::new(Kind::Tcp, quick());
    let good = w.connect(options());
    let (mut s, welcome) = raw_session(&w);
    let bulk = vec![3; 4 << 20];
    let mut writer = s.try_clone().unwrap();
    let feeder = std::thread::spawn(move || {
        for xid in 1..=40u64 {
            let mut h = Header::request(ECHO, xid);
            h.session = welcome.session.into();
            if writer.write_all(&encode_frame(h, &[], &bulk)).is_err() {
                return;
            }
        }
    });
    until("reading stops", || w.server.stats().stalled > 0);
    assert!(w.server.stats().requests < 40);
    good.call(ECHO, vec![], vec![]).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut left = 40 * (64 + (4 << 20));
    while left > 0 {
        left -= s.read(&mut buffer).unwrap();
    }
    feeder.join().unwrap();
    assert_eq!(w.server.stats().requests, 41);
}

#[test]
fn the_key_is_proven_both_ways() {
    let key = ClusterKey::generate();
    let w = World::new(Kind::Tcp, ServerOptions { key: Some(key.clone()), ..quick() });
    let with = |k: Option<ClusterKey>| {
        Session::connect(&w.endpoint, ConnectOptions { key: k, ..options() })
    };
    let s = with(Some(key.clone())).unwrap();
    s.call(ECHO, vec![], vec![]).unwrap();
    let refused = |r: Result<std::sync::Arc<Session>, NetError>| match r.map(|_| ()) {
        Err(NetError::Refused(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(with(None)), "the server asks for the cluster key and this client has none");
    assert_eq!(
        refused(with(Some(ClusterKey::generate()))),
        "the client does not hold this cluster's key"
    );
    let open = World::new(Kind::Tcp, quick());
    let o = ConnectOptions { key: Some(key), ..options() };
    assert_eq!(
        refused(Session::connect(&open.endpoint, o)),
        "the server did not ask for the cluster key; it holds none"
    );
    assert_eq!(w.target.opened.lock().len(), 1);
}

#[test]
fn an_impostor_cannot_answer_the_challenge() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let impostor = std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        let (header, _) = read_frame(&mut s);
        let mut reply = header.reply(0);
        reply.opcode = ops::session::PROVE.into();
        let challenge = Challenge { nonce: [1; 32] };
        s.write_all(&encode_frame(reply, &challenge.to_bytes(), &[])).unwrap();
        let (header, body) = read_frame(&mut s);
        // The client's own proof, sent back.
        let proof = Proof::from_bytes(&body).unwrap();
        let welcome = Welcome {
            session: 9,
            epoch: 1,
            version: proto::WIRE_VERSION,
            features: 0,
            credits: 4,
            resumed: false,
            data: vec![],
        };
        let accepted = Accepted { mac: proof.mac, welcome };
        s.write_all(&encode_frame(header.reply(0), &accepted.to_bytes(), &[])).unwrap();
    });
    let o = ConnectOptions { key: Some(ClusterKey::generate()), ..options() };
    let e = Session::connect(&endpoint, o).map(|_| ()).unwrap_err();
    assert_eq!(e, NetError::Refused("the server does not hold this cluster's key".into()));
    impostor.join().unwrap();
}

#[test]
fn listening_wide_needs_a_key() {
    let server = Server::new(quick());
    let wide = Endpoint::Tcp("0.0.0.0:0".into());
    let e = server.listen(&wide).unwrap_err();
    assert!(matches!(&e, NetError::Refused(t) if t.contains("cluster key")), "{e}");
    let keyed = Server::new(ServerOptions { key: Some(ClusterKey::generate()), ..quick() });
    keyed.listen(&wide).unwrap();
}

#[test]
fn unix_sockets_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mode = |p: &std::path::Path, m| {
        std::fs::set_permissions(p, std::fs::Permissions::from_mode(m)).unwrap();
    };
    let server = Server::new(quick());
    let endpoint = Endpoint::Unix(path.clone());
    mode(dir.path(), 0o755);
    let e = server.listen(&endpoint).unwrap_err().to_string();
    assert!(e.contains("mode 0700"), "{e}");
    mode(dir.path(), 0o700);
    std::fs::write(&path, "a file").unwrap();
    let e = server.listen(&endpoint).unwrap_err().to_string();
    assert!(e.contains("no socket"), "{e}");
    std::fs::remove_file(&path).unwrap();
    // A name left behind by a server that died is taken over, a living one's is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    server.listen(&endpoint).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let e = Server::new(quick()).listen(&endpoint).unwrap_err().to_string();
    assert!(e.contains("another server"), "{e}");
    server.shutdown();
    assert!(!path.exists());
}

#[test]
fn another_user_is_turned_away_from_a_unix_socket() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can play another user.
    }
    let w = World::new(Kind::Unix, quick());
    let Endpoint::Unix(path) = w.endpoint.clone() else { unreachable!() };
    // As if somebody had opened the doors by hand.
    let directory = path.parent().unwrap();
    for (p, mode) in [(directory.parent().unwrap(), 0o755), (directory, 0o755), (&*path, 0o666)] {
        std::fs::set_permissions(p, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let stranger = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65_534);
        // For this thread alone.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        let mut s = std::os::unix::net::UnixStream::connect(&path).unwrap();
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = s.write_all(&connect_frame(&hello()));
        let mut answer = Vec::new();
        let _ = s.read_to_end(&mut answer);
        answer
    });
    assert!(stranger.join().unwrap().is_empty());
    assert_eq!((w.server.stats().refused, w.server.stats().opened), (1, 0));
    w.connect(options()).call(ECHO, vec![], vec![]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_hurt_nobody_else(
        greet in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 1..600),
    ) {
        WORLD.with(|w| {
            let mut s = if greet { raw_session(w).0 } else { dial(w) };
            let _ = s.write_all(&bytes);
            let _ = s.shutdown(std::net::Shutdown::Write);
            prop_assert!(is_closed(&mut s));
            let good = w.connect(options());
            prop_assert!(good.call(ECHO, vec![1], vec![]).is_ok());
            Ok(())
        })?;
    }

    #[test]
    fn mutated_frames_hurt_nobody_else(
        at in 0usize..400,
        to in any::<u8>(),
        cut in 0usize..400,
        reseal in any::<bool>(),
    ) {
        WORLD.with(|w| {
            let (mut s, welcome) = raw_session(w);
            let mut bytes = Vec::new();
            for xid in 1..4 {
                let mut h = Header::request(ECHO, xid);
                h.session = welcome.session.into();
                let mut f = encode_frame(h, b"some body", &[7; 40]);
                if let Some(b) = f.get_mut(at) {
                    *b = to;
                    // A hostile peer can compute checksums too.
                    if reseal && at < 60 && !(8..16).contains(&at) {
                        let mut h = [0; 64];
                        h.copy_from_slice(&f[..64]);
                        let h: Header = zerocopy::transmute!(h);
                        f = encode_frame(h, b"some body", &[7; 40]);
                    }
                }
                bytes.extend(f);
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            let _ = s.write_all(&bytes);
            let _ = s.shutdown(std::net::Shutdown::Write);
            prop_assert!(is_closed(&mut s));
            let good = w.connect(options());
            prop_assert!(good.call(ECHO, vec![1], vec![]).is_ok());
            Ok(())
        })?;
    }
}

thread_local! {
    /// One listener for all cases of a property.
    static WORLD: World = World::new(Kind::Tcp, quick());
}
