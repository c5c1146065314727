//! `dat-peer ROLE PARAMETERS …`: the other process of the process tests. It ends when its input does.
#![forbid(unsafe_code)]

use std::io::BufRead;
use std::time::{Duration, Instant};

use dat::{CloseFlags, Ia, Result, RmrTriplet};
use dat_process_tests::{Crowd, Link, Load, Note, Server, fork, open, server, sum};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["serve", parameters] => serve(parameters, false),
        ["silent", parameters] => serve(parameters, true),
        ["load", parameters, port, load] => run_load(parameters, number(port), load),
        ["connect", parameters, port] => connect(parameters, number(port)),
        ["crowd", parameters, port, count] => crowd(parameters, number(port), number(count)),
        ["reconnect", parameters, port] => reconnect(parameters, number(port)),
        ["open", "-"] => open_once(),
        ["fork", parameters, port] => run_fork(parameters, number(port)),
        _ => panic!("roles: serve, silent, load, connect, crowd, reconnect, open, fork; see the source"),
    };
    if let Err(error) = outcome {
        println!("error {error}");
        std::process::exit(1);
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no port"))
}

/// `-` stands for the name as the registry's own lookup finds it.
fn adapter(parameters: &str) -> Result<Ia> {
    if parameters == "-" { dat::open("shm0") } else { open(parameters) }
}

/// Ends the process with its input, so that none is left when a test fails. Answers lines.
fn follow_input(answer: impl Fn(&str) + Send + 'static) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            answer(&line);
        }
        std::process::exit(0);
    });
}

fn serve(parameters: &str, silent: bool) -> Result<()> {
    let ia = adapter(parameters)?;
    let mut server = Server::new(&ia)?;
    if silent {
        server.be_silent();
    }
    let region = server.region().clone();
    follow_input(move |line| {
        // "sum LENGTH": of the beginning of the memory.
        if let Some(length) = line.strip_prefix("sum ") {
            let mut bytes = vec![0; number(length) as usize];
            region.read(0, &mut bytes);
            println!("sum {}", sum(&bytes));
        }
    });
    println!("port {}", server.port());
    loop {
        if let Some(Note::Gone(kind)) = server.turn(Duration::from_secs(1))? {
            println!("gone {kind:?}");
        }
    }
}

fn run_load(parameters: &str, port: u64, load: &str) -> Result<()> {
    follow_input(|_| ());
    let mut link = Link::new(&adapter(parameters)?)?;
    let load = Load::named(load).expect("the name of a load");
    link.connect(port, load.mode())?;
    println!("connected");
    loop {
        link.step(load)?;
        if load == Load::Idle {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn connect(parameters: &str, port: u64) -> Result<()> {
    let mut link = Link::new(&adapter(parameters)?)?;
    match link.connect(port, server::IDLE) {
        Ok(()) => println!("outcome connected"),
        Err(error) => println!("outcome {error}"),
    }
    Ok(())
}

fn crowd(parameters: &str, port: u64, count: u64) -> Result<()> {
    follow_input(|_| ());
    let mut crowd = Crowd::new(&adapter(parameters)?, port, count as usize)?;
    println!("working");
    let mut random = fastrand::Rng::new();
    loop {
        crowd.work(&mut random)?;
        // Many of these share few processors.
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn reconnect(parameters: &str, port: u64) -> Result<()> {
    follow_input(|_| ());
    let mut link = Link::new(&adapter(parameters)?)?;
    println!("ready");
    loop {
        link.connect(port, server::IDLE)?;
        link.hang_up()?;
    }
}

/// Registry, plugin and adapter, for the first time in this process.
fn open_once() -> Result<()> {
    let start = Instant::now();
    let ia = dat::open("shm0")?;
    println!("microseconds {}", start.elapsed().as_micros());
    drop(ia);
    Ok(())
}

/// Forks twice: once a child that tries every call, once one that drops everything. Prints what the child saw, and that
/// the parent's connection still works.
fn run_fork(parameters: &str, port: u64) -> Result<()> {
    follow_input(|_| ());
    let ia = adapter(parameters)?;
    let mut link = Link::new(&ia)?;
    link.connect(port, server::ECHO)?;
    echo(&link)?;
    let limit = Duration::from_secs(5);
    let calls = fork::in_child(limit, || try_calls(&link));
    println!("calls {calls:?}");
    echo(&link)?;
    let mut held = Some(link);
    // The child's copy goes with the child's memory; the parent's stays.
    let drops = fork::in_child(limit, || {
        drop(held.take());
        0
    });
    println!("drops {drops:?}");
    let mut link = held.take().expect("only the child took it");
    echo(&link)?;
    link.hang_up()?;
    println!("parent well");
    Ok(())
}

fn echo(link: &Link) -> Result<()> {
    link.ep.recv_into(&[link.region.slice(..64)]).post()?;
    link.ep.send_from(&[link.region.slice(64..128)]).post()?;
    for _ in 0..2 {
        let done = link.completion();
        assert!(done.status.is_success(), "{done:?}");
    }
    Ok(())
}

/// How many calls did something else than fail.
fn try_calls(link: &Link) -> u8 {
    let slice = [link.region.slice(..64)];
    let results = [
        ("pz", link.ia.pz().err()),
        ("evd", link.ia.evd(8).err()),
        ("buffer", link.pz.buffer(64).err()),
        ("listen", link.ia.listen_any(&link.connections).err()),
        ("ep", link.ia.ep(&link.pz).evd(&link.completions).create().err()),
        ("recv", link.ep.recv_into(&slice).post().err()),
        ("send", link.ep.send_from(&slice).post().err()),
        ("write", link.ep.write_from(&slice, link.remote).post().err()),
        ("read", link.ep.read_into(&slice, RmrTriplet { length: 64, ..link.remote }).post().err()),
        ("wait", link.completions.wait(Duration::from_millis(50)).err()),
        ("poll", link.completions.poll().err()),
        ("disconnect", link.ep.disconnect(CloseFlags::Abrupt).err()),
    ];
    let mut worked = 0;
    for (call, error) in results {
        match error {
            Some(error) => println!("child {call}: {error}"),
            None => {
                println!("child {call}: did not fail");
                worked += 1;
            }
        }
    }
    worked
}
