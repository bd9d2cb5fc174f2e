//! Connecting over a socket: the stream, the greeting, the proof of the key.

use super::core::Core;
use super::intake::{Intake, Line};
use super::{heard, trunk};
use crate::auth::{self, Accepted, Challenge, Proof, Side};
use crate::message::Frame;
use crate::reader::FrameReader;
use crate::socket::Stream;
use crate::socket::drive::{Peer, drive, read_one};
use crate::socket::halves::Reader;
use crate::socket::outbox::Outbox;
use crate::{Endpoint, NetError};
use proto::frame::Header;
use proto::mgs::{Hello, Welcome};
use proto::{Wire, ops};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};

/// Largest body of a reply to the greeting: what a service says of a session is in it.
const MAX_WELCOME: usize = 256 << 10;

/// One attempt over a socket, its own or one that is shared; on success the session is up and served.
pub(crate) async fn attempt(
    core: &Arc<Core>,
    generation: u64,
    endpoint: &Endpoint,
    hello: &Hello,
) -> Result<(), NetError> {
    let limit = core.options.connect_timeout;
    let attempt = async {
        if core.options.share {
            return trunk::attempt(core, generation, endpoint, hello).await;
        }
        dial(core, endpoint, hello).await?.settle(core, generation)
    };
    tokio::time::timeout(limit, attempt).await.map_err(|_| NetError::Timeout {
        target: format!("{} at {endpoint}", hello.target),
        after: limit,
    })?
}

/// A connection whose first session was let in; nothing that follows is read yet.
pub(crate) struct Dialled {
    pub(crate) read: Reader,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) welcome: Welcome,
    /// When it was begun, as a moment of [`heard`].
    pub(crate) began: u64,
}

pub(crate) async fn dial(
    core: &Core,
    endpoint: &Endpoint,
    hello: &Hello,
) -> Result<Dialled, NetError> {
    let began = heard::now();
    let stream = open(endpoint).await?;
    let needs_key = matches!(stream, Stream::Tcp(_));
    let split = stream.split().map_err(|e| NetError::Lost(format!("{endpoint}: {e}")));
    let (mut read, write) = split?;
    let outbox = Arc::new(Outbox::new(write, true));
    let welcome = greet(core, &mut read, &outbox, hello, needs_key).await?;
    Ok(Dialled { read, outbox, welcome, began })
}

impl Dialled {
    /// The connection is this session's alone.
    pub(crate) fn settle(self, core: &Arc<Core>, generation: u64) -> Result<(), NetError> {
        let Dialled { read, outbox, welcome, began } = self;
        core.heard.answered(began);
        core.welcomed(welcome);
        let intake = Intake::new(read.into_inner(), outbox.clone(), core, generation);
        core.adopt(generation, Arc::new(Line { outbox: outbox.clone(), intake: intake.clone() }))?;
        let (weak, pulse) = (Arc::downgrade(core), Pulse::of(core));
        let (also, out) = (intake.clone(), outbox.clone());
        core.runtime.spawn(serve(generation, Served { core: weak, outbox, intake: also, pulse }));
        if let Err(why) = intake.begin() {
            out.end(why);
        }
        Ok(())
    }
}

async fn open(endpoint: &Endpoint) -> Result<Stream, NetError> {
    let fail = |e: std::io::Error| NetError::Lost(format!("{endpoint}: {e}"));
    let stream = match endpoint {
        Endpoint::Tcp(address) => Stream::Tcp(TcpStream::connect(address).await.map_err(fail)?),
        Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path).await.map_err(fail)?),
        Endpoint::Local(_) => {
            return Err(NetError::Protocol("no socket leads into the process".into()));
        }
    };
    stream.check_peer().map_err(NetError::Refused)?;
    Ok(stream)
}

async fn greet(
    core: &Core,
    read: &mut Reader,
    outbox: &Outbox,
    hello: &Hello,
    needs_key: bool,
) -> Result<Welcome, NetError> {
    let mut frames = FrameReader::new(MAX_WELCOME, 0);
    let greeting = hello.to_bytes();
    put(outbox, ops::session::CONNECT, greeting.clone());
    let reply = answer(read, &mut frames, hello.client).await?;
    let key = core.options.key.as_ref().filter(|_| needs_key);
    if reply.header.opcode.get() != ops::session::PROVE {
        if key.is_some() {
            // An impostor cannot answer the challenge, so it would not ask for one.
            return Err(NetError::Refused(
                "the server did not ask for the cluster key; it holds none".into(),
            ));
        }
        return Welcome::from_bytes(&reply.body).map_err(malformed);
    }
    let Some(key) = key else {
        return Err(NetError::Refused(
            "the server asks for the cluster key and this client has none".into(),
        ));
    };
    let theirs = Challenge::from_bytes(&reply.body).map_err(malformed)?.nonce;
    let ours = auth::nonce();
    let mac = auth::prove(key, Side::Client, &theirs, &ours, &greeting);
    put(outbox, ops::session::PROVE, Proof { nonce: ours, mac }.to_bytes());
    let reply = answer(read, &mut frames, hello.client).await?;
    let accepted = Accepted::from_bytes(&reply.body).map_err(malformed)?;
    if !auth::verify(key, Side::Server, &theirs, &ours, &greeting, &accepted.mac) {
        return Err(NetError::Refused("the server does not hold this cluster's key".into()));
    }
    Ok(accepted.welcome)
}

fn put(outbox: &Outbox, opcode: u16, body: Vec<u8>) {
    use crate::link::Link;
    let header = Header::request(opcode, 0);
    outbox.send(Frame { header, body: body.into(), bulk: Vec::new() });
}

/// A reply to a set-up message; a status other than 0 is a refusal in words.
async fn answer(
    read: &mut Reader,
    frames: &mut FrameReader,
    client: [u8; 16],
) -> Result<Frame, NetError> {
    let reply = read_one(read, frames).await?;
    accepted(&reply, client)?;
    Ok(reply)
}

/// Whether a reply to a set-up message says yes.
pub(crate) fn accepted(reply: &Frame, client: [u8; 16]) -> Result<(), NetError> {
    if !reply.header.is_reply() {
        return Err(NetError::Protocol("no reply to the greeting".into()));
    }
    if reply.header.status.get() != 0 {
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        return Err(NetError::refused(text, client));
    }
    Ok(())
}

pub(crate) fn malformed(e: proto::DecodeError) -> NetError {
    NetError::Protocol(format!("cannot read the server's greeting: {e}"))
}

async fn serve(generation: u64, mut served: Served) {
    let (core, outbox) = (served.core.clone(), served.outbox.clone());
    let why = NetError::Lost("the connection ended".into());
    let mut attached = Attached { core, outbox: outbox.clone(), generation, why };
    let first = served.pulse.interval;
    attached.why = drive(None, &outbox, usize::MAX, first, &mut served).await;
}

/// Ends the connection with its task, even if that panics in a caller's code.
struct Attached {
    core: Weak<Core>,
    outbox: Arc<Outbox>,
    generation: u64,
    why: NetError,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.outbox.end(self.why.clone());
        if let Some(core) = self.core.upgrade() {
            core.lost(self.generation, self.why.clone());
        }
    }
}

struct Served {
    core: Weak<Core>,
    outbox: Arc<Outbox>,
    intake: Arc<Intake>,
    pulse: Pulse,
}

impl Peer for Served {
    fn frame(&mut self, _: Frame) -> Result<(), NetError> {
        Err(NetError::Protocol("read by who reads nothing".into()))
    }

    fn quiet(&mut self, _: Duration) -> Result<Duration, NetError> {
        let Some(session) = self.core.upgrade().and_then(|c| c.welcome()) else {
            return Err(NetError::Shutdown);
        };
        self.pulse.beat(self.intake.silence(), &self.outbox, session.session)
    }
}

/// When a connection pings, and when it gives up.
pub(crate) struct Pulse {
    pub(crate) interval: Duration,
    timeout: Duration,
}

impl Pulse {
    pub(crate) fn of(core: &Core) -> Pulse {
        Pulse { interval: core.options.ping_interval, timeout: core.options.ping_timeout }
    }

    /// Pings also while frames come: the server must hear of a client that only listens.
    pub(crate) fn beat(
        &self,
        silence: Duration,
        outbox: &Outbox,
        session: u64,
    ) -> Result<Duration, NetError> {
        use crate::link::Link;
        if silence >= self.timeout {
            return Err(NetError::Lost(format!("the server is silent for {silence:?}")));
        }
        let mut header = Header::request(ops::session::PING, heard::now());
        header.session = session.into();
        outbox.send(Frame::bare(header));
        Ok(self.interval.min(self.timeout - silence))
    }
}
