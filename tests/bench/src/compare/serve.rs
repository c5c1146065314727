//! The other side of the measurements over many connections: accepts every client, echoes each message, and ends
//! with its standard input.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dat::{DtoOperation, Ep, EpAttr, EvdFlags, Event, ObjectId, Privileges};
use dat_measure::cpu;

/// How long it polls after the last message before it sleeps.
const SPIN: Duration = Duration::from_millis(2);
/// Connections at most.
pub(crate) const MOST: u32 = 4096;
/// Bytes of a message.
pub(crate) const LENGTH: usize = 8;

/// What an endpoint of either side has: as little as an echo needs.
pub(crate) fn attr() -> EpAttr {
    EpAttr { max_recv_dtos: 2, max_request_dtos: 2, ..EpAttr::default() }
}

/// `serve CPU`: prints address, qualifier and the name of a socket to compare with.
pub(crate) fn serve(args: &[String]) {
    let cpu = args.first().and_then(|cpu| cpu.parse().ok()).expect("serve CPU");
    cpu::pin(cpu).expect("the processor may be used");
    super::descriptors::many_descriptors();
    let ia = dat::open("shm0").expect("shm0 opens");
    let pz = ia.pz().expect("a zone");
    let requests = ia.evd_of(1024, EvdFlags::CR | EvdFlags::CONNECTION).expect("a dispatcher");
    let completions = ia.evd_of(4 * MOST, EvdFlags::DTO).expect("a dispatcher");
    let region = pz.region(2 * LENGTH, Privileges::ALL).expect("a region");
    let psp = ia.listen_any(&requests).expect("a service point");
    let socket = std::env::temp_dir().join(format!("dat-bench-{}", std::process::id()));
    let plain = UnixListener::bind(&socket).expect("a socket");
    println!("{} {} {}", ia.address().expect("an address"), psp.conn_qual(), socket.display());
    thread::spawn(move || {
        // Accepts, and closes the stream as the answer.
        for stream in plain.incoming() {
            drop(stream);
        }
    });
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = std::fs::remove_file(&socket);
        std::process::exit(0);
    });
    let eps: Mutex<HashMap<ObjectId, Arc<Ep>>> = Mutex::default();
    let (into, from) = (region.slice(..LENGTH), region.slice(LENGTH..2 * LENGTH));
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let Ok(event) = requests.wait_forever() else { return };
                let Event::Request(mut request) = event else { continue };
                let ep = ia.ep(&pz).connect_evd(&requests).recv_evd(&completions).request_evd(&completions);
                let ep = Arc::new(ep.attr(attr()).create().expect("an endpoint"));
                ep.recv_into(&[into]).post().expect("a receive");
                // Known before the first message can come.
                eps.lock().expect("no panic under it").insert(ep.id(), ep.clone());
                request.accept(&ep, &[]).expect("an accept");
            }
        });
        let mut last = Instant::now();
        let mut known: HashMap<ObjectId, Arc<Ep>> = HashMap::new();
        loop {
            let event = match last.elapsed() < SPIN {
                true => (0..1000).find_map(|_| completions.poll().expect("no error")),
                false => completions.wait(Duration::from_secs(1)).expect("no error"),
            };
            let Some(Event::Completion(done)) = event else { continue };
            last = Instant::now();
            if done.operation != DtoOperation::Receive || !done.status.is_success() {
                continue;
            }
            if !known.contains_key(&done.ep) {
                let mut waiting = eps.lock().expect("no panic under it");
                known.extend(waiting.drain());
            }
            let Some(ep) = known.get(&done.ep) else { continue };
            ep.send_from(&[from]).post().expect("a send");
            ep.recv_into(&[into]).post().expect("a receive");
        }
    });
}
