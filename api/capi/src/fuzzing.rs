//! What the fuzzer calls: programs of any calls of the table, with handles that are valid, stale, of another kind or
//! none, and argument structures of any contents. Pointers are null or valid, as the headers demand: no more is promised.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "not part of the interface")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use dat_plugin::feed::Feed;
use dat_plugin::host::Plugin;
use dat_registry::Registry;
use dat_types::CloseFlags;

use crate::abi::*;
use crate::code::guarded;
use crate::{calls, exports};

static PROVIDER: OnceLock<Plugin> = OnceLock::new();

/// The registry there is: one IA, `fuzz`, of the provider that the fuzzer brings.
fn registry() -> Registry {
    let text = "[provider.fuzz]\nlibrary = \"builtin:loopback\"\n";
    let registry = Registry::from_str("fuzz", text).expect("a sound text");
    registry.with_static(PROVIDER.get().expect("set before").clone())
}

/// Bytes that any pointer has behind it.
const ROOM: usize = 1 << 16;

/// Makes arguments. Whatever an argument points to lies in one of two areas of [`ROOM`] bytes: `input` is written here
/// and read by the library, `output` the other way round. Both live for ever.
struct Caller<'a> {
    feed: Feed<'a>,
    input: *mut u8,
    output: *mut u8,
    /// What lies in `output`: places of handles and numbers to be looked at after the call.
    at: usize,
    handles: Vec<Handle>,
    numbers: Vec<u32>,
    /// The call sleeps that many microseconds at most, if it sleeps.
    waits: bool,
    /// The call's 64-bit numbers are masks, and no lengths.
    masks: bool,
}

trait Argument {
    fn make(caller: &mut Caller<'_>) -> Self;
}

impl Caller<'_> {
    /// A place of this size in an area, or null.
    fn place<T>(&mut self, area: *mut u8) -> *mut T {
        if self.feed.u8() == 7 {
            return std::ptr::null_mut();
        }
        self.at = (self.at + 4096) % (ROOM / 2);
        // SAFETY: `at` is below ROOM / 2, and `calls` made each area with ROOM bytes.
        unsafe { area.add(self.at).cast() }
    }

    /// A structure whose bytes are the input's, with what is a pointer put right by `mend`.
    fn structure<T>(&mut self, mend: impl FnOnce(&mut Self, &mut T)) -> *const T {
        let place = self.place::<T>(self.input);
        if place.is_null() {
            return place;
        }
        let bytes = self.feed.bytes(size_of::<T>());
        // SAFETY: `place` leaves half of the area behind each place, more than any structure has. It is aligned to 4096
        // bytes from the area's start, and the area to 8. All bytes are set, and `T` is a C structure of numbers and raw
        // pointers, which any bytes are. This thread alone uses the area between calls.
        unsafe {
            std::ptr::write_bytes(place, 0, 1);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast::<u8>(), bytes.len());
            mend(self, &mut *place);
        }
        place
    }

    fn named(&mut self) -> (Count, *const NamedAttr) {
        static NAMES: [&[u8; 4]; 3] = [b"abc\0", b"\xFF\xFE\x01\0", b"\0\0\0\0"];
        // SAFETY: the last 4096 of the area's ROOM bytes.
        let list = unsafe { self.input.add(ROOM - 4096).cast::<NamedAttr>() };
        for index in 0..4 {
            let mut text = || match self.feed.u8() % 4 {
                0 => std::ptr::null(),
                other => NAMES[other as usize - 1].as_ptr().cast::<c_char>(),
            };
            // SAFETY: four entries fit into 4096 bytes of the area, which this thread alone uses between calls.
            unsafe { list.add(index).write(NamedAttr { name: text(), value: text() }) };
        }
        let count = self.feed.pick(&[0, 0, 1, 4, -1]);
        (count, if self.feed.flag() { list } else { std::ptr::null() })
    }

    fn sane(&mut self, attr: &mut EpAttr) {
        (attr.ep_transport_specific_count, attr.ep_transport_specific) = self.named();
        (attr.ep_provider_specific_count, attr.ep_provider_specific) = self.named();
        if self.feed.flag() {
            *attr = EpAttr {
                service_type: 1,
                max_message_size: 4096,
                max_rdma_size: 4096,
                qos: 0,
                max_recv_dtos: 4,
                max_request_dtos: 4,
                max_recv_iov: 2,
                max_request_iov: 2,
                max_rdma_read_in: 1,
                max_rdma_read_out: 1,
                max_rdma_read_iov: 1,
                max_rdma_write_iov: 1,
                recv_completion_flags: 0,
                request_completion_flags: 0,
                srq_soft_hw: 0,
                ..*attr
            };
        }
    }

    fn triplet(&mut self) -> LmrTriplet {
        let mut triplet = LmrTriplet::default();
        triplet.address = self.output as u64 + u64::from(self.feed.u16());
        triplet.length = self.feed.edge() as u32;
        triplet.context = u32::make(self);
        triplet
    }

    /// Keeps what a call gave.
    fn collect(&mut self, made: &[*mut Handle], numbers: &[*mut u32]) {
        for place in made.iter().filter(|place| !place.is_null()) {
            // SAFETY: `Argument::make` took it from the output area and wrote a handle there; the call has returned.
            let handle = unsafe { place.read() };
            if !handle.is_null() && self.handles.len() < 64 {
                self.handles.push(handle);
            }
        }
        for place in numbers.iter().filter(|place| !place.is_null()) {
            if self.numbers.len() < 64 {
                // SAFETY: in the output area, whose bytes were all set at first; the call has returned.
                self.numbers.push(unsafe { place.read() });
            }
        }
    }
}

impl Argument for Handle {
    fn make(caller: &mut Caller<'_>) -> Handle {
        match caller.feed.u8() {
            255 => caller.feed.u64() as Handle,
            254 => caller.feed.u8() as usize as Handle,
            253 => caller.output.cast(),
            252 => NULL,
            251 => caller.handles.first().map_or(NULL, |handle| handle.wrapping_byte_add(8)),
            at => caller.handles.get(at as usize % caller.handles.len().max(1)).copied().unwrap_or(NULL),
        }
    }
}

impl Argument for *mut Handle {
    fn make(caller: &mut Caller<'_>) -> *mut Handle {
        let place: *mut Handle = caller.place(caller.output);
        if !place.is_null() {
            // SAFETY: `place` has room and alignment for a handle (`Caller::place`).
            unsafe { place.write(NULL) };
        }
        place
    }
}

impl Argument for u32 {
    fn make(caller: &mut Caller<'_>) -> u32 {
        if caller.waits {
            return u32::from(caller.feed.u8() % 32);
        }
        match caller.feed.u8() {
            at @ 128..=191 if !caller.numbers.is_empty() => {
                caller.numbers[at as usize % caller.numbers.len()]
            }
            small @ 0..=127 => (small % 64).into(),
            _ => caller.feed.edge() as u32,
        }
    }
}

impl Argument for Count {
    fn make(caller: &mut Caller<'_>) -> Count {
        match caller.feed.u8() {
            small @ 0..=63 => Count::from(small) - 2,
            64..=127 => 1,
            choice => [0, 2, 4, 255, 256, 257, 1024, 2000, Count::MIN][choice as usize % 9],
        }
    }
}

impl Argument for u64 {
    fn make(caller: &mut Caller<'_>) -> u64 {
        match caller.feed.u8() {
            _ if caller.masks => caller.feed.u64(),
            // A length or count at most: as much as an area holds.
            255 => u64::from(caller.feed.u16() % 4096),
            small => small.into(),
        }
    }
}

impl Argument for RegionDescription {
    fn make(caller: &mut Caller<'_>) -> RegionDescription {
        // Longer regions than half of the area are never asked for.
        let first = caller.output.wrapping_add(usize::from(caller.feed.u8()) * 64);
        RegionDescription { first: first.cast(), second: caller.place(caller.input) }
    }
}

impl Argument for Agent {
    fn make(caller: &mut Caller<'_>) -> Agent {
        unsafe extern "C" fn agent(_: *mut c_void, _: Handle) {}
        let proxy_agent_func = caller.feed.flag().then_some(agent as AgentFunction);
        Agent { instance_data: std::ptr::null_mut(), proxy_agent_func }
    }
}

impl Argument for Address {
    fn make(caller: &mut Caller<'_>) -> Address {
        let place = caller.place::<libc::sockaddr_storage>(caller.input);
        if !place.is_null() {
            // SAFETY: `place` has room for the structure, whose 128 bytes hold the 26 after the family (`Caller::place`).
            unsafe {
                std::ptr::write_bytes(place, 0, 1);
                let family = caller.feed.pick(&[libc::AF_INET, libc::AF_INET, libc::AF_INET6, 0, 77]);
                let bytes = caller.feed.bytes(26);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast::<u8>().add(2), bytes.len());
                (*place).ss_family = family as u16;
                if caller.feed.flag() {
                    // The loopback provider's own.
                    place.cast::<u8>().add(4).copy_from([127, 0, 0, 1].as_ptr(), 4);
                }
            }
        }
        place.cast()
    }
}

macro_rules! output {
    ($($type:ty),*) => {$(
        impl Argument for *mut $type {
            fn make(caller: &mut Caller<'_>) -> *mut $type {
                caller.place(caller.output)
            }
        }
    )*};
}
output!(
    IaAttr,
    ProviderAttr,
    u32,
    u64,
    Count,
    CnoParam,
    CrParam,
    EvdParam,
    Event,
    EpParam,
    LmrParam,
    RmrParam,
    PspParam,
    RspParam,
    PzParam,
    SrqParam,
    CspParam
);

impl Argument for *const c_void {
    fn make(caller: &mut Caller<'_>) -> *const c_void {
        let place: *mut u8 = caller.place(caller.input);
        if !place.is_null() {
            let bytes = caller.feed.bytes(16);
            // SAFETY: at most 16 bytes, and `place` leaves half of the area (`Caller::place`).
            unsafe { place.copy_from(bytes.as_ptr(), bytes.len()) };
        }
        place.cast()
    }
}

impl Argument for *const Event {
    fn make(caller: &mut Caller<'_>) -> *const Event {
        caller.structure(|_, _| {})
    }
}

impl Argument for *const EpAttr {
    fn make(caller: &mut Caller<'_>) -> *const EpAttr {
        caller.structure(|caller, attr: &mut EpAttr| caller.sane(attr))
    }
}

impl Argument for *const EpParam {
    fn make(caller: &mut Caller<'_>) -> *const EpParam {
        caller.structure(|caller, param: &mut EpParam| {
            caller.sane(&mut param.ep_attr);
            param.local_ia_address_ptr = Address::make(caller);
            param.remote_ia_address_ptr = Address::make(caller);
            for handle in [
                &mut param.ia_handle,
                &mut param.pz_handle,
                &mut param.recv_evd_handle,
                &mut param.request_evd_handle,
                &mut param.connect_evd_handle,
                &mut param.srq_handle,
            ] {
                *handle = Handle::make(caller);
            }
        })
    }
}

impl Argument for *const SrqAttr {
    fn make(caller: &mut Caller<'_>) -> *const SrqAttr {
        caller.structure(|caller, attr: &mut SrqAttr| {
            attr.max_recv_dtos = Count::make(caller);
            attr.max_recv_iov = Count::make(caller);
        })
    }
}

impl Argument for *const Comm {
    fn make(caller: &mut Caller<'_>) -> *const Comm {
        caller.structure(|_, _| {})
    }
}

impl Argument for *const LmrTriplet {
    fn make(caller: &mut Caller<'_>) -> *const LmrTriplet {
        if caller.feed.u8() == 7 {
            return std::ptr::null();
        }
        // Room for as many triplets as any count names.
        let place = caller.input.cast::<LmrTriplet>();
        for at in 0..4 {
            let triplet = caller.triplet();
            // SAFETY: four triplets from the area's start, which this thread alone uses between calls.
            unsafe { place.add(at).write(triplet) };
        }
        place
    }
}

impl Argument for *const RmrTriplet {
    fn make(caller: &mut Caller<'_>) -> *const RmrTriplet {
        let triplet = caller.triplet();
        caller.structure(|_, remote: &mut RmrTriplet| {
            remote.address = triplet.address;
            remote.length = triplet.length;
            remote.context = triplet.context;
        })
    }
}

macro_rules! programs {
    ($($mode:ident $slot:ident $symbol:ident $module:ident::$call:ident ($first:ident $(, $name:ident: $type:ty)*);)*) => {
        /// One call.
        fn one(caller: &mut Caller<'_>) {
            const NAMES: &[&str] = &[$(stringify!($slot)),*];
            let (mut made, mut numbers) = (Vec::<*mut Handle>::new(), Vec::<*mut u32>::new());
            let which = caller.feed.u8() as usize % NAMES.len();
            caller.waits = NAMES[which].contains("wait_func");
            caller.masks = ["query_func", "modify_func"].iter().any(|part| NAMES[which].contains(part));
            let mut at = 0;
            $(
                if which == at {
                    let $first = Handle::make(caller);
                    $(let $name = <$type as Argument>::make(caller);)*
                    $(note(&mut made, &mut numbers, &$name);)*
                    // SAFETY: pointers are null or valid, counts are within what lies there.
                    let _ = guarded(|| unsafe { calls::$module::$call($first $(, $name)*) });
                }
                #[allow(unused_assignments, reason = "after the last")]
                { at += 1; }
            )*
            caller.collect(&made, &numbers);
        }
    };
}
crate::abi::for_each_function!(programs);

/// Notes where a handle or a number will be.
fn note<T: 'static>(made: &mut Vec<*mut Handle>, numbers: &mut Vec<*mut u32>, argument: &T) {
    let argument: &dyn std::any::Any = argument;
    made.extend(argument.downcast_ref::<*mut Handle>());
    numbers.extend(argument.downcast_ref::<*mut u32>());
}

/// A program of calls.
pub fn calls(bytes: &[u8], provider: fn() -> Plugin) {
    static AREAS: OnceLock<[usize; 2]> = OnceLock::new();
    PROVIDER.get_or_init(provider);
    crate::names::ONLY.get_or_init(|| registry);
    let [input, output] = *AREAS.get_or_init(|| {
        [(); 2].map(|()| Box::leak(vec![0u64; ROOM / 8].into_boxed_slice()).as_mut_ptr() as usize)
    });
    let mut caller = Caller {
        feed: Feed(bytes),
        input: input as *mut u8,
        output: output as *mut u8,
        at: 0,
        handles: Vec::new(),
        numbers: Vec::new(),
        waits: false,
        masks: false,
    };
    let (mut ia, mut evd) = (NULL, NULL);
    // SAFETY: a terminated name, and two places.
    let opened = unsafe { exports::dat_ia_openv(c"fuzz".as_ptr(), 8, &mut evd, &mut ia, 2, 0, 1) };
    assert_eq!(opened, 0, "the IA does not open");
    caller.handles.extend([ia, evd]);
    let mut calls = 0;
    while !caller.feed.is_empty() && calls < 256 {
        one(&mut caller);
        calls += 1;
    }
    // SAFETY: no thread uses memory of the regions.
    unsafe { exports::dat_ia_close(ia, CloseFlags::Abrupt as u32) };
}
