//! Who gets which RAM.
//!
//! Core 0, where most services start, gets two parts of its NUMA node's memory, every other core one of its own node's. Only a core whose node has
//! less than half of what an even split of the machine would give takes from others, the nearest first; memory of nodes without cores goes to whoever is
//! below that even split. Shares of a core are at most [`super::info::CORE_RANGES_MAX`] ranges; page aligned, disjoint.

use super::acpi::{Affinity, Distances};
use super::info::{CORES_MAX, CoreEntry, CoreShare};
use super::memmap::FreeRam;
use crate::memory::{PAGE_BYTES, PhysRange};

/// Least memory a core is given, in bytes; includes its kernel instance.
pub const SHARE_BYTES_MIN: u64 = 2 << 20;
/// From this share on, borders lie on 2 MiB so that large pages stay possible.
const COARSE_SHARE_BYTES: u64 = 64 << 20;

/// Divides `free` between `cores`. `instance_bytes` (whole pages) is cut off the front of each share's first range.
/// `None`: some core would get less than [`SHARE_BYTES_MIN`].
pub fn split(
    mut free: FreeRam,
    affinities: &[Affinity],
    distances: &Distances,
    cores: &[CoreEntry],
    instance_bytes: u64,
    shares: &mut [CoreShare; CORES_MAX],
) -> Option<()> {
    let share = free.bytes() / (cores.len() as u64 + 1);
    let grain = if share >= COARSE_SHARE_BYTES { 2 << 20 } else { PAGE_BYTES as u64 };
    let whole = free.clone();
    for (core, entry) in cores.iter().enumerate() {
        let own = || affinities.iter().filter(|affinity| affinity.node == entry.node).map(|affinity| affinity.range);
        let node_bytes: u64 = own().map(|range| whole.bytes_in(range)).sum();
        let node_parts: u64 = (0..).zip(cores).filter(|(_, it)| it.node == entry.node).map(|(it, _)| parts(it)).sum();
        let mut got = Share::new(node_bytes / node_parts * parts(core), grain, instance_bytes);
        own().for_each(|range| got.take(&mut free, range));
        shares[core] = got.share;
    }
    // Second round: memory of nodes without cores; and any, of no node too, for those whose own nodes have too little.
    for (core, slot) in shares.iter_mut().enumerate().take(cores.len()) {
        let mut got = Share::resume(*slot, share * parts(core), grain, instance_bytes);
        let lacks = got.bytes() < share * parts(core) / 2;
        let distance = |affinity: &Affinity| distances.between(cores[core].node, affinity.node);
        let open = |affinity: &&Affinity| lacks || cores.iter().all(|other| other.node != affinity.node);
        let mut nearest = 0;
        while let Some(next) = affinities.iter().filter(open).map(distance).filter(|distance| *distance > nearest).min()
        {
            nearest = next;
            for affinity in affinities.iter().filter(open).filter(|affinity| distance(affinity) == nearest) {
                got.take(&mut free, affinity.range);
            }
        }
        if lacks {
            got.take(&mut free, PhysRange::new(0, u64::MAX));
        }
        if got.bytes() < SHARE_BYTES_MIN || got.share.instance.is_empty() {
            return None;
        }
        *slot = got.share;
    }
    Some(())
}

/// How many parts of its node's memory a core gets.
fn parts(core: usize) -> u64 {
    if core == 0 { 2 } else { 1 }
}

/// One core's share while it grows.
struct Share {
    share: CoreShare,
    wanted: u64,
    grain: u64,
    instance_bytes: u64,
}

impl Share {
    fn new(wanted: u64, grain: u64, instance_bytes: u64) -> Share {
        Share { share: CoreShare::default(), wanted, grain, instance_bytes }
    }

    fn resume(share: CoreShare, wanted: u64, grain: u64, instance_bytes: u64) -> Share {
        Share { share, wanted, grain, instance_bytes }
    }

    fn bytes(&self) -> u64 {
        self.share.instance.bytes + self.share.ram.iter().map(|range| range.bytes).sum::<u64>()
    }

    /// Takes from the part of `free` inside `window` until satisfied to within one grain.
    fn take(&mut self, free: &mut FreeRam, window: PhysRange) {
        let candidates = free.clone();
        for range in candidates.ranges() {
            let missing = self.wanted.saturating_sub(self.bytes());
            let base = range.base.0.max(window.base.0);
            let available = PhysRange::new(base, range.end().0.min(window.end().0).saturating_sub(base)).whole_pages();
            let least =
                if self.share.instance.is_empty() { self.instance_bytes + PAGE_BYTES as u64 } else { self.grain };
            if missing >= self.grain && available.bytes >= least {
                self.add(free, available, missing.max(least));
            }
        }
    }

    fn add(&mut self, free: &mut FreeRam, available: PhysRange, missing: u64) {
        let Some(slot) = self.share.ram.iter().position(PhysRange::is_empty) else { return };
        let first = available.base.0;
        let cut = (first + missing) / self.grain * self.grain;
        let end = if cut > first + self.instance_bytes { cut } else { first + missing };
        let mut taken = PhysRange::new(first, end.min(available.end().0) - first).whole_pages();
        free.reserve(taken);
        if self.share.instance.is_empty() {
            self.share.instance = PhysRange::new(first, self.instance_bytes);
            taken = PhysRange::new(first + self.instance_bytes, taken.bytes - self.instance_bytes);
        }
        self.share.ram[slot] = taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE: u64 = 0x40000;

    fn cores(nodes: &[u32]) -> Vec<CoreEntry> {
        nodes.iter().enumerate().map(|(id, node)| CoreEntry { apic_id: id as u32, node: *node }).collect()
    }

    fn run(ram: &[(u64, u64)], nodes: &[u32], affinities: &[Affinity]) -> Option<Vec<CoreShare>> {
        let mut free = FreeRam::default();
        ram.iter().for_each(|(base, bytes)| free.add(PhysRange::new(*base, *bytes)));
        let total = free.bytes();
        let mut shares = [CoreShare::default(); CORES_MAX];
        split(free, affinities, &Distances::default(), &cores(nodes), INSTANCE, &mut shares)?;
        let shares = shares[..nodes.len()].to_vec();
        let ranges: Vec<PhysRange> =
            shares.iter().flat_map(|s| s.ram.into_iter().chain([s.instance])).filter(|r| !r.is_empty()).collect();
        for (at, range) in ranges.iter().enumerate() {
            assert_eq!(range.whole_pages(), *range);
            assert!(ranges[at + 1..].iter().all(|other| !other.overlaps(range)));
        }
        assert!(ranges.iter().map(|range| range.bytes).sum::<u64>() <= total);
        Some(shares)
    }

    #[test]
    fn many_machines() {
        for count in [1usize, 2, 3, 8, 64, 255] {
            for mib in [64u64, 513, 1024, 3072] {
                let ram = [(0x100000, 0x1f000000.min(mib << 19)), (0x1_0000_0000, mib << 19)];
                let Some(shares) = run(&ram, &vec![0; count], &[]) else {
                    assert!(mib / (count as u64 + 1) < 4, "{mib} MiB for {count} cores");
                    continue;
                };
                let least = shares.iter().map(|s| s.ram.iter().map(|r| r.bytes).sum::<u64>() + INSTANCE).min().unwrap();
                assert!(least >= SHARE_BYTES_MIN);
            }
        }
    }

    #[test]
    fn nodes_keep_their_memory() {
        let half = 256u64 << 20;
        let affinities = [
            Affinity { range: PhysRange::new(0, half), node: 0 },
            Affinity { range: PhysRange::new(half, half), node: 1 },
        ];
        let shares = run(&[(0, 2 * half)], &[0, 1, 0, 1], &affinities).unwrap();
        for (core, share) in shares.iter().enumerate() {
            let node = affinities[core % 2].range;
            let all = share.ram.iter().chain([&share.instance]);
            assert!(
                all.filter(|range| !range.is_empty()).all(|range| node.overlap_bytes(range) == range.bytes),
                "{core}"
            );
        }
    }

    #[test]
    fn cores_without_memory_take_the_nearest() {
        let part = 64u64 << 20;
        let node = |number: u32| Affinity { range: PhysRange::new(u64::from(number) * part, part), node: number };
        // Node 2 has cores and no memory, and is nearer to node 1 than to node 0; node 3 has memory and no cores.
        let mut distances = Distances::default();
        distances.set(2, 0, 40);
        distances.set(2, 1, 15);
        distances.set(2, 3, 30);
        let affinities = [node(0), node(1), node(3)];
        let mut free = FreeRam::default();
        [0, 1, 3].iter().for_each(|number| free.add(node(*number).range));
        let mut shares = [CoreShare::default(); CORES_MAX];
        split(free, &affinities, &distances, &cores(&[0, 1, 2]), INSTANCE, &mut shares).unwrap();
        assert!(node(0).range.contains(shares[0].instance.base));
        assert!(node(1).range.contains(shares[1].instance.base));
        // Node 1 is full: the next is 3.
        assert!(node(3).range.contains(shares[2].instance.base));
    }

    #[test]
    fn too_little() {
        assert!(run(&[(0x100000, 8 << 20)], &[0; 8], &[]).is_none());
    }
}
