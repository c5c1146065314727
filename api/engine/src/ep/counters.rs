//! What an endpoint counted.

use dat_types::{EpCounter, Result};

use super::inner::{Ep, EpInner};
use crate::base::counters::EpCounts;

impl EpInner {
    fn count(&self, reset: bool) -> Vec<u64> {
        use EpCounter as C;
        let mut out = vec![0; C::ALL.len()];
        let EpCounts { posted, received, connects, disconnects, base } = &self.counts;
        out[C::Connect as usize] = connects.get();
        out[C::Disconnect as usize] = disconnects.get();
        posted.send.put(&mut out, C::PostSend, C::PostSendData);
        posted.recv.put(&mut out, C::PostRecv, C::PostRecvData);
        posted.write.put(&mut out, C::PostWrite, C::PostWriteData);
        posted.write_immed.put(&mut out, C::PostWriteImm, C::PostWriteImmData);
        posted.read.put(&mut out, C::PostRead, C::PostReadData);
        out[C::PostCmpSwap as usize] = posted.compare_swaps.get();
        out[C::PostFetchAdd as usize] = posted.fetch_adds.get();
        received.plain.put(&mut out, C::Recv, C::RecvData);
        received.immed.put(&mut out, C::RecvImm, C::RecvImmData);
        received.write_immed.put(&mut out, C::RecvRdmaImm, C::RecvRdmaImmData);
        base.since(out, reset)
    }
}

impl Ep {
    /// What happened on it since it was made or the counters were last reset, by [`EpCounter`]. A snapshot while others
    /// post and poll.
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        self.handle_type()?;
        Ok(self.0.count(reset))
    }
}
