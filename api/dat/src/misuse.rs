//! Programs that must not compile, each with the error that stops it. They are tested with the documentation; only a
//! nightly compiler compares the codes. What shows only when a program runs is in `tests/soundness.rs`.

/// A buffer has one owner.
///
/// ```compile_fail,E0599
/// fn two(buffer: dat::Buffer) -> (dat::Buffer, dat::Buffer) { (buffer.clone(), buffer) }
/// ```
/// A posted buffer cannot be read, and cannot be posted again.
/// ```compile_fail,E0382
/// fn read(ep: &dat::Ep, buffer: dat::Buffer) -> u8 { let _ = ep.recv(buffer); buffer[0] }
/// ```
/// ```compile_fail,E0382
/// fn twice(ep: &dat::Ep, buffer: dat::Buffer) { let _ = (ep.recv(buffer), ep.recv(buffer)); }
/// ```
/// ```compile_fail,E0382
/// fn twice(srq: &dat::Srq, buffer: dat::Buffer) { let _ = (srq.recv(buffer), srq.recv(buffer)); }
/// ```
/// A reference to a buffer does not survive the post.
/// ```compile_fail,E0505
/// fn keep(ep: &dat::Ep, buffer: dat::Buffer) -> u8 { let first = &buffer[0]; let _ = ep.recv(buffer); *first }
/// ```
/// A buffer is no region: no slice names it.
/// ```compile_fail,E0599
/// fn name(buffer: &dat::Buffer) -> dat::Slice { buffer.slice(..) }
/// ```
struct OfBuffers;

/// A region gives no reference to its bytes.
///
/// ```compile_fail,E0608
/// fn look(region: &dat::Region) -> &u8 { &region[0] }
/// ```
/// ```compile_fail,E0277
/// fn look(region: &dat::Region) -> &[u8] { std::convert::AsRef::<[u8]>::as_ref(region) }
/// ```
/// A slice is made by a region only.
/// ```compile_fail,E0451
/// fn forge(slice: dat::Slice) -> dat::Slice { dat::Slice { ..slice } }
/// ```
struct OfRegions;

/// Memory of the caller is registered by `unsafe` calls only.
///
/// ```compile_fail,E0133
/// fn any(pz: &dat::Pz) { let _ = pz.register_foreign(8 as *mut u8, 8, dat::Privileges::ALL); }
/// ```
/// ```compile_fail,E0133
/// fn any(pz: &dat::Pz, name: dat::LmrCookie) {
///     let _ = pz.register_shared(8 as *mut u8, 8, name, dat::Privileges::ALL);
/// }
/// ```
/// ```compile_fail,E0133
/// fn any() -> dat::plugin::host::Memory { dat::plugin::host::Memory::foreign(8, 8, None) }
/// ```
/// ```compile_fail,E0133
/// fn any() -> dat::plugin::Segment { dat::plugin::Segment::from_parts(8, 8, 0) }
/// ```
/// ```compile_fail,E0451
/// fn any() -> dat::plugin::Segment { dat::plugin::Segment { addr: 8, len: 8, lkey: 0 } }
/// ```
/// ```compile_fail,E0133
/// fn below(device: dat::plugin::host::Device) { let _ = dat::plugin::host::Below::new(device); }
/// ```
struct OfMemory;

/// The engine's objects post any memory that is registered, so they are reached by `unsafe` calls only.
///
/// ```compile_fail,E0133
/// fn of(ia: &dat::Ia) { ia.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(pz: &dat::Pz) { pz.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(ep: &dat::Ep) { ep.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(srq: &dat::Srq) { srq.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(evd: &dat::Evd) { evd.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(request: &dat::Request) { request.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(region: &dat::Region) { region.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(window: &dat::Window) { window.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(psp: &dat::Psp) { psp.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(rsp: &dat::Rsp) { rsp.engine(); }
/// ```
/// ```compile_fail,E0133
/// fn of(csp: &dat::Csp) { csp.engine(); }
/// ```
struct OfTheEngine;
