//! What a connection has carried, for who asks (TCP_INFO).

use crate::record::brings_bytes;
use crate::segment::{Segment, before};

/// Sums since the connection began. Times are 0 before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Segments that left, those that were sent again too.
    pub segments_sent: u32,
    /// Segments that came.
    pub segments_received: u32,
    /// Of those that left, with bytes.
    pub with_bytes_sent: u32,
    /// Of those that came, with bytes.
    pub with_bytes_received: u32,
    /// Of those that left, sent again.
    pub repeated_segments: u32,
    /// Bytes that the peer acknowledged, SYN and FIN among them.
    pub bytes_acknowledged: u64,
    /// Bytes that came, once each.
    pub bytes_received: u64,
    /// Most bytes that were on the way at once since the last loss: the library does not tell what
    /// it would allow.
    pub most_on_the_way: u32,
    /// When bytes came last.
    pub bytes_came_ns: u64,
    /// When something was acknowledged last.
    pub acknowledged_ns: u64,
}

impl Traffic {
    /// A segment left; `next` was the number after all that had left before, and `on_the_way` is
    /// what is unacknowledged now.
    pub fn sent(&mut self, segment: &Segment, next: u32, on_the_way: u32) {
        let brings = brings_bytes(segment);
        self.segments_sent = self.segments_sent.wrapping_add(1);
        self.with_bytes_sent = self.with_bytes_sent.wrapping_add(u32::from(brings));
        let is_repeated = brings && before(segment.sequence, next);
        self.repeated_segments = self.repeated_segments.wrapping_add(u32::from(is_repeated));
        self.most_on_the_way = self.most_on_the_way.max(on_the_way);
    }

    /// A segment came, and acknowledged so many bytes for the first time.
    pub fn received(&mut self, segment: &Segment, acknowledged: u32, now_ns: u64) {
        let brings = brings_bytes(segment);
        self.segments_received = self.segments_received.wrapping_add(1);
        self.with_bytes_received = self.with_bytes_received.wrapping_add(u32::from(brings));
        self.bytes_acknowledged += u64::from(acknowledged);
        if brings {
            self.bytes_came_ns = now_ns;
        }
        if segment.acknowledged.is_some() {
            self.acknowledged_ns = now_ns;
        }
    }

    /// What was on the way is lost.
    pub fn lost(&mut self) {
        self.most_on_the_way = 0;
    }
}
