//! The in-process transport end to end.

use pinstripe_net::*;
use proto::mgs::Hello;
use std::sync::Arc;

struct Echo;

impl Service for Echo {
    fn target(&self) -> String {
        "OST0000".into()
    }
    fn fs(&self) -> [u8; 16] {
        [7; 16]
    }
    fn epoch(&self) -> u32 {
        3
    }
    fn open(&self, _: &SessionRef, hello: &Hello, _: bool) -> Result<Vec<u8>, String> {
        Ok(hello.target.clone().into_bytes())
    }
    fn request(&self, _: &SessionRef, request: Request, reply: Responder) {
        reply.send(Response::with_bulk(request.body.to_vec(), vec![request.bulk]));
    }
    fn closed(&self, _: &SessionRef, _: Closed) {}
}

#[test]
fn echo_in_process() {
    let server = Server::new(ServerOptions::default());
    server.add(Arc::new(Echo));
    let options = ConnectOptions { target: "OST0000".into(), ..ConnectOptions::default() };
    let session = Session::connect(&Endpoint::Local(server.local()), options).unwrap();
    assert_eq!(session.welcome().data, b"OST0000");
    let bulk = bytes::Bytes::from(vec![5u8; 1 << 20]);
    let reply = session.call(0x301, b"hi".to_vec(), vec![bulk.clone()]).unwrap();
    assert_eq!(&reply.body[..], b"hi");
    assert_eq!(reply.bulk.as_ptr(), bulk.as_ptr());
    session.close();
    assert_eq!(server.stats().sessions, 0);
    assert_eq!(session.call(1, vec![], vec![]).unwrap_err(), NetError::Shutdown);
}
