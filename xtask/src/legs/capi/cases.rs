//! Which programs are run, over which providers, and what a provider refuses.

/// One run of one program.
pub struct Case {
    pub program: &'static str,
    /// Arguments of both sides, or of the one there is.
    pub arguments: &'static str,
    pub kind: Kind,
    /// What must be printed, by each side.
    pub wanted: &'static [&'static str],
    /// What it needs besides the base of uDAPL; a column that lacks one of them must refuse it.
    pub needs: &'static [Need],
    /// How often a pair may be tried.
    pub tries: usize,
}

/// How a program is run.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Server and client; only the client gets `-h`.
    Pair(Ready),
    /// A client of `dapltest -T S`, which gets the command to quit afterwards.
    Served,
    /// One process.
    Alone,
    /// A C test of this project's, in one process.
    Own,
}

/// How a server is seen to be ready.
#[derive(Clone, Copy)]
pub enum Ready {
    /// It listens on the port at which the programs exchange addresses.
    Port,
    /// It prints this text.
    Says(&'static str),
}

/// What not every provider has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    SharedReceives,
    Atomics,
    Datagrams,
}

impl Need {
    /// Why, for people.
    pub fn words(self) -> &'static str {
        match self {
            Need::SharedReceives => "no shared receive queues",
            Need::Atomics => "no atomic operations",
            Need::Datagrams => "no datagrams (UD)",
        }
    }
}

/// A column of the table.
pub struct Column {
    /// As the table shows it, and the report's name.
    pub name: &'static str,
    /// The name programs open.
    pub ia: &'static str,
    /// Its entry in `plugins.toml`.
    pub library: &'static str,
    pub params: &'static str,
    /// How clients name the server's host.
    pub host: &'static str,
    pub lacks: &'static [Need],
    /// Where it runs.
    pub place: Place,
}

/// Where a column runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this machine.
    Here,
    /// The same, where libfabric is installed.
    HereWithLibfabric,
    /// Where there is an RDMA device: in the emulated machine.
    Rdma,
}

impl Column {
    /// Why a case must be refused. Datagrams are, everywhere.
    pub fn lacks(&self, needs: &[Need]) -> Option<Need> {
        needs.iter().copied().find(|need| *need == Need::Datagrams || self.lacks.contains(need))
    }
}

pub const COLUMNS: [Column; 4] = [
    Column {
        name: "shm",
        ia: "shm0",
        library: "libdat_shm.so",
        params: "",
        host: "localhost",
        lacks: &[],
        place: Place::Here,
    },
    Column {
        name: "libfabric-tcp",
        ia: "ofi-tcp",
        params: "fabric = \"tcp\", endpoint = \"msg\", address = \"127.0.0.1\"",
        lacks: &[Need::Atomics],
        ..LIBFABRIC
    },
    Column {
        name: "libfabric-tcp-rdm",
        ia: "ofi-rdm",
        params: "fabric = \"tcp;ofi_rxm\", endpoint = \"rdm\", address = \"127.0.0.1\"",
        ..LIBFABRIC
    },
    Column {
        name: "ibverbs",
        ia: "ib0",
        library: "libdat_ibverbs.so",
        host: "",
        place: Place::Rdma,
        ..LIBFABRIC
    },
];

const LIBFABRIC: Column = Column {
    name: "",
    ia: "",
    library: "libdat_libfabric.so",
    params: "",
    host: "127.0.0.1",
    lacks: &[],
    place: Place::HereWithLibfabric,
};

/// C tests of this project (api/capi/tests/c) that are programs for any provider.
pub const OWN: [&str; 7] = ["transfer", "habits", "table", "threads", "notify", "races", "extensions"];

const PASSED: &[&str] = &["DAPL Test Complete. PASSED"];
const CM_DONE: &[&str] = &["DAPL Connection Test Complete."];
const SRQ_DONE: &[&str] = &["DAPL RC SRQ Test Complete."];
const SRQ_READY: Ready = Ready::Says("server ready on port");

pub const CASES: &[Case] = &[
    // Registers 432 MB, which takes a minute on an emulated device.
    pair("dtest", "", PASSED),
    pair("dtest", "-b 65536", PASSED),
    pair("dtest", "-p -b 65536", PASSED),
    pair("dtest", "-c -b 65536", PASSED),
    pair("dtest", "-w -b 65536", PASSED),
    pair("dtest", "-W -D -b 4096 -B 200", PASSED),
    pair("dtest", "-t -B 50 -b 65536", PASSED),
    pair("dtestcm", "-c 200", CM_DONE),
    pair("dtestcm", "-c 200 -w", CM_DONE),
    Case { kind: Kind::Pair(SRQ_READY), needs: &[Need::SharedReceives], ..pair("dtestsrq", "", SRQ_DONE) },
    Case {
        kind: Kind::Pair(SRQ_READY),
        needs: &[Need::SharedReceives],
        ..pair("dtestsrq", "-c 5 -B 10", SRQ_DONE)
    },
    // Its client is as fast as its server.
    Case { needs: &[Need::Atomics], tries: 12, ..pair("dtestx", "", &["immed/atomic test PASSED"]) },
    Case { needs: &[Need::Datagrams], ..pair("dtestx", "-u", &[]) },
    served("-T T -i 100 -t 1 -w 1 client SR 256 server SR 256"),
    served("-T T -i 100 -t 4 -w 8 -V client SR 256 server SR 256"),
    served(
        "-T T -i 100 -t 8 -w 8 -P client SR 1024 3 server RW 65536 2 server SR 256 client RR 65536 server SR 128",
    ),
    served("-T T -i 50 -t 2 -w 4 -V -r client SR 256 server SR 256"),
    served("-T P -i 2000 -p 64 -m p RW 4096"),
    served("-T P -i 2000 -p 64 -m b RW 4096 2"),
    served("-T P -i 2000 -p 32 -m p RR 4096"),
    alone(
        "-T L -m 100 limit_ia limit_pz limit_cno limit_evd limit_ep limit_lmr limit_rpost limit_size_lmr",
        &["LMRs created: 100", "EPs created: 100"],
    ),
    alone("-T L -m 100 limit_psp limit_rsp", &["PSPs created: 100", "RSPs created: 100"]),
    alone(
        "-T L -w 8 -m 100 limit_pz limit_cno limit_evd limit_ep limit_lmr limit_rpost",
        &["EPs created: 100", "LMRs created: 100"],
    ),
    alone("-T L -w 8 -m 100 limit_psp limit_rsp", &["PSPs created: 100", "RSPs created: 100"]),
    alone("-T F -f hwconn", &["case: 3"]),
    alone("-T F -f endpoint", &["case: 2"]),
    alone("-T F -f pz", &["case: 2"]),
    alone("-T F -f mem", &["case: 4"]),
    alone("-T F -f queryinfo", &["case: 17"]),
    alone("-T F -f connmgt", &["case: 1"]),
    own(OWN[0]),
    own(OWN[1]),
    own(OWN[2]),
    own(OWN[3]),
    own(OWN[4]),
    own(OWN[5]),
    Case { needs: &[Need::Atomics, Need::SharedReceives], ..own(OWN[6]) },
];

const fn own(program: &'static str) -> Case {
    Case { program, arguments: "", kind: Kind::Own, wanted: &[], needs: &[], tries: 1 }
}

/// A server of the `dtest` family prints its address some 20 µs before it listens there. The client takes 5 ms to
/// connect. On a busy machine the server may be late even so: its client is rightly refused, and the pair tried again.
const fn pair(program: &'static str, arguments: &'static str, wanted: &'static [&'static str]) -> Case {
    Case { program, arguments, kind: Kind::Pair(Ready::Port), wanted, needs: &[], tries: 3 }
}

const fn served(arguments: &'static str) -> Case {
    Case {
        program: "dapltest",
        arguments,
        kind: Kind::Served,
        wanted: &["End of Work"],
        needs: &[],
        tries: 1,
    }
}

const fn alone(arguments: &'static str, wanted: &'static [&'static str]) -> Case {
    Case { program: "dapltest", arguments, kind: Kind::Alone, wanted, needs: &[], tries: 1 }
}

impl Case {
    /// The arguments, one by one.
    pub fn words(&self) -> Vec<&'static str> {
        self.arguments.split_whitespace().collect()
    }

    /// The command, as a row of the table.
    pub fn shown(&self) -> String {
        let kind = if matches!(self.kind, Kind::Own) { "ours: " } else { "" };
        format!("{kind}{} {}", self.program, self.arguments).trim_end().to_owned()
    }
}
