//! From a connection to a session: `CONNECT`, the key where one is needed, `Welcome`.
//!
//! Assumptions: a peer that has not proven anything yet gets little memory and little time.

use super::session::SessionInner;
use super::stats::{down, up};
use super::trunk::Trunk;
use super::{Refusal, ServerInner, refusal};
use crate::NetError;
use crate::auth::{self, Accepted, Challenge, Proof, Side};
use crate::message::Frame;
use crate::reader::FrameReader;
use crate::socket::Stream;
use crate::socket::drive::{Peer, drive, read_one};
use crate::socket::halves::Reader;
use crate::socket::outbox::{MAX_QUEUED_BYTES, Outbox};
use proto::frame::{HEADER_LEN, Header};
use proto::mgs::{FEATURE_TRUNK, Hello, Welcome};
use proto::{Errno, Wire, ops};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Largest body before a session exists.
pub(crate) const MAX_SETUP_BODY: usize = 4096;
/// Longest description and target name a client may give, in bytes.
const MAX_NAME: usize = 512;

/// How long a client of another wire version may take to read that.
const STRANGER_WAIT: Duration = Duration::from_secs(1);

/// Counts a connection where it is: being set up, then served.
pub(crate) struct Gauge {
    server: Arc<ServerInner>,
    load: Arc<AtomicU64>,
    handshaking: bool,
}

impl Gauge {
    pub(crate) fn new(server: Arc<ServerInner>, load: Arc<AtomicU64>) -> Gauge {
        up(&server.counters.connections);
        Gauge { server, load, handshaking: true }
    }

    fn settled(&mut self) {
        if std::mem::take(&mut self.handshaking) {
            self.server.handshaking.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.settled();
        down(&self.server.counters.connections);
        self.load.fetch_sub(1, Relaxed);
    }
}

/// Serves one connection to its end.
pub(crate) async fn serve(server: &Arc<ServerInner>, stream: Stream, peer: &str, mut gauge: Gauge) {
    let needs_key = matches!(stream, Stream::Tcp(_));
    let (mut read, write) = match stream.split() {
        Ok(halves) => halves,
        Err(e) => return server.log.warn(peer, &format!("cannot be served: {e}")),
    };
    let outbox = Arc::new(Outbox::new(write, false));
    let limit = server.options.handshake_timeout;
    let set_up = tokio::time::timeout(limit, set_up(server, &mut read, &outbox, needs_key)).await;
    gauge.settled();
    let (session, shared) = match set_up {
        Ok(Ok(found)) => found,
        Ok(Err(e)) => {
            if e.is_bad_frame() {
                up(&server.counters.bad_frames);
            }
            return server.log.warn(peer, &format!("no session: {e}"));
        }
        Err(_) => {
            up(&server.counters.refused);
            return server.log.warn(peer, &format!("no session within {limit:?}"));
        }
    };
    // Attached before the welcome leaves: who is welcome is connected.
    let sessions = match shared {
        true => Sessions::many(server, &outbox, &session),
        false => Sessions::one(&outbox, session),
    };
    outbox.flush();
    let Some(sessions) = sessions else { return };
    let idle = server.options.idle_timeout;
    let mut served = Served { server, idle, sessions, outbox: outbox.clone() };
    let why = drive(Some(&mut read), &outbox, MAX_QUEUED_BYTES, idle, &mut served).await;
    if why.is_bad_frame() {
        up(&server.counters.bad_frames);
        server.log.warn(peer, &why.to_string());
    } else {
        tracing::debug!(peer, "{why}");
    }
}

/// Whose frames the connection carries.
enum Sessions {
    One { session: Arc<SessionInner>, generation: u64 },
    Many(Trunk),
}

impl Sessions {
    fn one(outbox: &Arc<Outbox>, session: Arc<SessionInner>) -> Option<Sessions> {
        let generation = session.attach(outbox.clone())?;
        Some(Sessions::One { session, generation })
    }

    fn many(
        server: &Arc<ServerInner>,
        outbox: &Arc<Outbox>,
        first: &Arc<SessionInner>,
    ) -> Option<Sessions> {
        let trunk = Trunk::new(server, outbox);
        trunk.join(first);
        Some(Sessions::Many(trunk))
    }
}

/// Ends the connection with its task, however that ends: by a return, a panic of the service, or
/// the end of the runtime.
struct Served<'a> {
    server: &'a Arc<ServerInner>,
    idle: Duration,
    sessions: Sessions,
    outbox: Arc<Outbox>,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.outbox.end(NetError::Lost("the connection ended".into()));
        if let Sessions::One { session, generation } = &self.sessions {
            session.detach(*generation);
        }
    }
}

impl Peer for Served<'_> {
    fn frame(&mut self, frame: Frame) -> Result<(), NetError> {
        match &self.sessions {
            Sessions::One { session, generation } => session.receive(*generation, frame),
            Sessions::Many(trunk) => trunk.receive(frame),
        }
    }

    fn quiet(&mut self, silence: Duration) -> Result<Duration, NetError> {
        if let Sessions::Many(trunk) = &self.sessions
            && trunk.is_empty()
        {
            return Err(NetError::Lost("the connection carries no session".into()));
        }
        if silence < self.idle {
            return Ok(self.idle - silence);
        }
        up(&self.server.counters.silent);
        Err(NetError::Lost(format!("the client is silent for {silence:?}")))
    }

    fn stalled(&mut self) {
        up(&self.server.counters.stalled);
    }
}

/// A session, and whether more may follow on its connection.
pub(crate) type SetUp = (Arc<SessionInner>, bool);

/// Lets in who greets with `hello`; also tells whether more sessions may follow.
pub(crate) fn admit(server: &Arc<ServerInner>, hello: &Hello) -> Result<(SetUp, Welcome), Refusal> {
    let (session, mut welcome) = server.admit(hello)?;
    let shared = hello.features & FEATURE_TRUNK != 0 && server.options.connection_sessions > 1;
    if shared {
        welcome.features |= FEATURE_TRUNK;
    }
    Ok(((session, shared), welcome))
}

async fn set_up(
    server: &Arc<ServerInner>,
    read: &mut Reader,
    outbox: &Outbox,
    needs_key: bool,
) -> Result<SetUp, NetError> {
    let mut frames = FrameReader::new(MAX_SETUP_BODY, 0);
    let connect = match read_one(read, &mut frames).await {
        Ok(frame) => frame,
        Err(e) => {
            if let NetError::Version { .. } = e {
                answer_stranger(read, outbox, &e).await;
            }
            return Err(e);
        }
    };
    if connect.header.opcode.get() != ops::session::CONNECT || connect.header.is_reply() {
        return Err(NetError::Protocol("the first message is not CONNECT".into()));
    }
    let hello = match read_hello(&connect) {
        Ok(hello) => hello,
        Err(r) => return refuse(server, outbox, &connect.header, r),
    };
    let Some(key) = server.options.key.as_ref().filter(|_| needs_key) else {
        return match admit(server, &hello) {
            Ok((set_up, welcome)) => {
                let header = welcome_header(server, &connect.header, &welcome);
                put(outbox, header, welcome.to_bytes());
                Ok(set_up)
            }
            Err(r) => refuse(server, outbox, &connect.header, r),
        };
    };
    let nonce = auth::nonce();
    let mut header = connect.header.reply(0);
    header.opcode = ops::session::PROVE.into();
    put(outbox, header, Challenge { nonce }.to_bytes());
    outbox.flush();
    let prove = read_one(read, &mut frames).await?;
    let proof = match Proof::from_bytes(&prove.body) {
        Ok(p) if prove.header.opcode.get() == ops::session::PROVE => p,
        _ => return Err(NetError::Protocol("the second message is not PROVE".into())),
    };
    if !auth::verify(key, Side::Client, &nonce, &proof.nonce, &connect.body, &proof.mac) {
        let text = "the client does not hold this cluster's key";
        return refuse(server, outbox, &prove.header, refusal(Errno::EKEYREJECTED, text));
    }
    match admit(server, &hello) {
        Ok((set_up, welcome)) => {
            let mac = auth::prove(key, Side::Server, &nonce, &proof.nonce, &connect.body);
            let body = Accepted { mac, welcome: welcome.clone() }.to_bytes();
            put(outbox, welcome_header(server, &prove.header, &welcome), body);
            Ok(set_up)
        }
        Err(r) => refuse(server, outbox, &prove.header, r),
    }
}

/// Who greets in another wire version gets a frame of this one: its fourth byte tells which that is. What
/// is still to be read is taken first, or the connection's end would overtake the answer.
async fn answer_stranger(read: &mut Reader, outbox: &Outbox, why: &NetError) {
    let header = Header::request(ops::session::CONNECT, 0).reply(Errno::EPROTO.status());
    put(outbox, header, why.to_string().into_bytes());
    outbox.flush();
    let rest = async {
        let (mut taken, mut bytes) = (0, [0; 512]);
        while taken < MAX_SETUP_BODY + HEADER_LEN {
            match read.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(n) => taken += n,
            }
        }
    };
    let _ = tokio::time::timeout(STRANGER_WAIT, rest).await;
}

pub(crate) fn read_hello(connect: &Frame) -> Result<Hello, Refusal> {
    let hello = Hello::from_bytes(&connect.body)
        .map_err(|e| refusal(Errno::EPROTO, format!("cannot read the greeting: {e}")))?;
    if hello.description.len() > MAX_NAME || hello.target.len() > MAX_NAME {
        let text = format!("names in the greeting are at most {MAX_NAME} bytes");
        return Err(refusal(Errno::EPROTO, text));
    }
    Ok(hello)
}

/// Of the reply that lets a client in.
pub(crate) fn welcome_header(server: &ServerInner, to: &Header, welcome: &Welcome) -> Header {
    let mut header = to.reply(0);
    header.session = welcome.session.into();
    header.epoch = welcome.epoch.into();
    header.credits = server.grant().into();
    header
}

pub(crate) fn put(outbox: &Outbox, header: Header, body: Vec<u8>) {
    use crate::link::Link;
    outbox.send(Frame { header, body: body.into(), bulk: Vec::new() });
}

fn refuse(
    server: &ServerInner,
    outbox: &Outbox,
    to: &Header,
    why: Refusal,
) -> Result<SetUp, NetError> {
    if why.errno == Errno::EKEYREJECTED || why.errno == Errno::EPROTO {
        up(&server.counters.refused);
    }
    put(outbox, to.reply(why.errno.status()), why.text.clone().into_bytes());
    outbox.flush();
    Err(NetError::Refused(why.text))
}
