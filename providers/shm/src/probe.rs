//! What this provider could use here, each tried for real.

use std::sync::Arc;

use dat_plugin::{Access, Config, Probe};

use crate::data::sizes;
use crate::data::slab::{Slab, Slot};
use crate::memory::cma::try_nonce;
use crate::memory::keys::KeyTable;
use crate::memory::mapping::HugePages;
use crate::notify::barrier;
use crate::params::Params;

pub(crate) fn candidates(config: &Config) -> Vec<Probe> {
    let params = match Params::parse(config) {
        Ok(params) => params,
        Err(failure) => return vec![verdict("configuration", Err(failure.message))],
    };
    vec![
        verdict("memfd", memfd(params.ring_bytes.unwrap_or(sizes::USUAL))),
        verdict("mapped", mapped()),
        verdict("cma", cma(&params)),
        verdict("target", Ok("executed by the peer's process; always works".into())),
        verdict("membarrier", membarrier()),
        verdict("hugepages", hugepages()),
    ]
}

fn verdict(candidate: &str, outcome: Result<String, String>) -> Probe {
    let usable = outcome.is_ok();
    Probe { candidate: candidate.into(), usable, reason: outcome.unwrap_or_else(|why| why) }
}

fn memfd(ring: usize) -> Result<String, String> {
    let slot = Slot::single(ring).map_err(|error| format!("no sealed memfd: {error}"))?;
    let fd = slot.slab().file().ok_or("a segment without a file")?;
    let fd = fd.try_clone_to_owned().map_err(|error| error.to_string())?;
    let twice = Arc::new(Slab::open(fd.into(), ring, slot.place())?);
    Slot::given(&twice, slot.place())?;
    Ok(format!("a sealed memfd with rings of {} KiB was made and mapped twice", ring / 1024))
}

fn mapped() -> Result<String, String> {
    let table = KeyTable::new().map_err(|error| format!("no read-only shared key table: {error}"))?;
    let block = table.alloc(4096, HugePages::Off).map_err(|failure| failure.message)?;
    table.register(block.addr, 4096, Access::REMOTE_READ, 0).map_err(|failure| failure.message)?;
    table.share(block.handle, false, 0).ok_or("no read-only descriptor; is /proc mounted?")?;
    Ok("memory allocated by the adapter can be given to peers, also read-only".into())
}

fn cma(params: &Params) -> Result<String, String> {
    if !params.cma {
        return Err("switched off by the parameter cma".into());
    }
    let nonce = 0x6461_745f_7368_6d21_u64;
    try_nonce(std::process::id(), &raw const nonce as u64, nonce)?;
    Ok("process_vm_readv works on this process; each connection probes it for its peer".into())
}

fn membarrier() -> Result<String, String> {
    match barrier::join_barriers() {
        true => Ok("waking a sleeper costs the posting side no fence".into()),
        false => Err("not to be had here; a fence per post takes its place".into()),
    }
}

fn hugepages() -> Result<String, String> {
    let table = KeyTable::new().map_err(|error| error.to_string())?;
    match table.alloc(2 << 20, HugePages::Require) {
        Ok(_) => Ok("2 MiB pages are free".into()),
        Err(failure) => Err(format!("{}; reserve some in /proc/sys/vm/nr_hugepages", failure.message)),
    }
}
