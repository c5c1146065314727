//! What is measured, and what a program under measurement does.

use dat_measure::cpu::Placement;

/// What is measured: a name in the result, and what the figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Test {
    SendLatency,
    SendRate,
    SendBandwidth,
    /// The two of messages from and to ordinary memory.
    HeapLatency,
    HeapBandwidth,
    WriteLatency,
    WriteBandwidth,
    ReadBandwidth,
    TcpLatency,
    WakeUp,
    Connect,
    EmptyPoll,
    EchoAmongIdle,
    Memory,
    Descriptors,
}

impl Test {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Test::SendLatency => "send_latency",
            Test::SendRate => "send_rate",
            Test::SendBandwidth => "send_bandwidth",
            Test::HeapLatency => "heap_latency",
            Test::HeapBandwidth => "heap_bandwidth",
            Test::WriteLatency => "write_latency",
            Test::WriteBandwidth => "write_bandwidth",
            Test::ReadBandwidth => "read_bandwidth",
            Test::TcpLatency => "tcp_latency",
            Test::WakeUp => "wake_up",
            Test::Connect => "connect",
            Test::EmptyPoll => "empty_poll",
            Test::EchoAmongIdle => "echo_among_idle",
            Test::Memory => "memory",
            Test::Descriptors => "descriptors",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Test::SendRate => "M/s",
            test if test.is_bandwidth() => "GB/s",
            Test::Memory => "bytes",
            Test::Descriptors => "descriptors",
            _ => "ns",
        }
    }

    /// Whether a smaller figure is the better one.
    pub(crate) fn less_is_better(self) -> bool {
        self != Test::SendRate && !self.is_bandwidth()
    }

    pub(crate) fn is_bandwidth(self) -> bool {
        use Test::*;
        matches!(self, SendBandwidth | HeapBandwidth | WriteBandwidth | ReadBandwidth)
    }
}

/// A point: a test at a size. For tests of connections the size is their number.
pub(crate) type Point = (Test, u32);

/// Something that can be measured at a point.
pub(crate) trait Contender {
    /// As the tables name it.
    fn name(&self) -> &str;
    /// Whether it has this test.
    fn takes(&self, point: Point) -> bool;
    /// One sample, in the test's unit. What knows the places of its figures itself gives one for each.
    fn measure(&mut self, point: Point) -> Result<Vec<(Option<Placement>, f64)>, String>;
}

/// The points of a run.
pub(crate) fn points(quick: bool) -> Vec<Point> {
    use Test::*;
    let sizes: &[u32] = match quick {
        true => &[8, 4 << 10, 1 << 20],
        false => &[8, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20],
    };
    let at = |test: Test, from: u32, to: u32| {
        sizes.iter().filter(move |size| (from..=to).contains(*size)).map(move |&size| (test, size))
    };
    let most = u32::MAX;
    let mut points: Vec<Point> = at(SendLatency, 0, most).collect();
    points.extend(at(WriteLatency, 0, 64 << 10));
    points.extend(at(SendRate, 0, 64));
    points.extend(at(SendBandwidth, 1 << 10, most));
    points.extend(at(HeapLatency, 4 << 10, 1 << 20));
    points.extend(at(HeapBandwidth, 4 << 10, most));
    points.extend(at(WriteBandwidth, 4 << 10, most));
    points.extend(at(ReadBandwidth, 4 << 10, most));
    points.extend(at(TcpLatency, 0, 1 << 20).filter(|(_, size)| quick || *size != 1 << 10));
    points.push((WakeUp, 8));
    points
}
