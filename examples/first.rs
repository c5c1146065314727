//! The first program of README.md: both sides of a connection in one program.
#![forbid(unsafe_code)]

use std::time::Duration;

use dat::{ConnectionKind, Event};

const LIMIT: Duration = Duration::from_secs(5);

fn main() -> dat::Result<()> {
    let ia = dat::open("shm0")?; // a name from plugins.toml
    let pz = ia.pz()?;

    // The server: an endpoint with a posted receive, and a listener.
    let server_evd = ia.evd(64)?; // a dispatcher for every kind of event
    let server = ia.ep(&pz).evd(&server_evd).create()?;
    server.recv(pz.buffer(64)?)?;
    let listener = ia.listen_any(&server_evd)?;

    // The client asks for a connection, and the server accepts it.
    let client_evd = ia.evd(64)?;
    let client = ia.ep(&pz).evd(&client_evd).create()?;
    client.connect(ia.address()?, listener.conn_qual()).timeout(LIMIT).start()?;
    let Some(Event::Request(mut request)) = server_evd.wait(LIMIT)? else { panic!("no request") };
    request.accept(&server, b"")?;
    let established = client_evd.wait(LIMIT)?;
    assert!(matches!(established, Some(Event::Connection { kind: ConnectionKind::Established, .. })));

    // The buffer belongs to the endpoint until the send completes.
    let mut buffer = pz.buffer(64)?;
    buffer[..5].copy_from_slice(b"hello");
    client.send(buffer, ..5)?;
    while let Some(event) = server_evd.wait(LIMIT)? {
        let Event::Completion(done) = event else { continue };
        let buffer = server.reclaim(&done).expect("the server's receive");
        println!("received {:?}", String::from_utf8_lossy(&buffer[..done.length as usize]));
        break;
    }
    Ok(())
}
