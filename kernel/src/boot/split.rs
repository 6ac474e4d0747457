//! How RAM is split among cores.
//!
//! Core 0, where most services start, gets two parts of its NUMA node's memory, every other core
//! one part of its own node's. Only a core whose node has less than half of an even split of the
//! machine takes memory of other nodes, the nearest first; memory of nodes without cores goes to
//! the cores that are below that even split. A core gets at most [`super::info::CORE_RANGES_MAX`]
//! ranges; they are page aligned and disjoint.
//!
//! The first core of a node that has not the loader's image gives room for a copy, if it has
//! plenty; cores without an image in their node run the nearest.

use super::acpi::{Affinity, Distances};
use super::info::{CORES_MAX, CoreEntry, CoreShare};
use super::memmap::FreeRam;
use crate::memory::{PAGE_BYTES, PhysAddr, PhysRange};

/// Least memory a core is given, in bytes; includes its kernel instance.
pub const SHARE_BYTES_MIN: u64 = 2 << 20;
/// From this share on, borders lie on 2 MiB so that large pages stay possible.
const COARSE_SHARE_BYTES: u64 = 64 << 20;

/// What kernels need; bytes are whole pages.
#[derive(Clone, Copy)]
pub struct Needs {
    /// Bytes of a core's instance, cut off the front of its share's first range.
    pub instance: u64,
    /// Where the loader put the image.
    pub image: PhysAddr,
    /// Bytes of a copy of the image, behind the instance of the core that gives room for it.
    pub copy: u64,
}

/// Divides `free` between `cores`. `None`: some core would get less than [`SHARE_BYTES_MIN`].
pub fn split(
    mut free: FreeRam,
    affinities: &[Affinity],
    distances: &Distances,
    cores: &[CoreEntry],
    needs: Needs,
    shares: &mut [CoreShare; CORES_MAX],
) -> Option<()> {
    let share = free.bytes() / (cores.len() as u64 + 1);
    let grain = if share >= COARSE_SHARE_BYTES { 2 << 20 } else { PAGE_BYTES as u64 };
    let whole = free.clone();
    let node_of = |place| affinities.iter().find(|affinity| affinity.range.contains(place)).map(|part| part.node);
    for (core, entry) in cores.iter().enumerate() {
        let own = || affinities.iter().filter(|affinity| affinity.node == entry.node).map(|affinity| affinity.range);
        let node_bytes: u64 = own().map(|range| whole.bytes_in(range)).sum();
        let node_parts: u64 = (0..).zip(cores).filter(|(_, it)| it.node == entry.node).map(|(it, _)| parts(it)).sum();
        let wanted = node_bytes / node_parts * parts(core);
        let is_near = |image: PhysAddr| node_of(image) == Some(entry.node);
        let has_image = is_near(needs.image) || shares[..core].iter().any(|share| is_near(share.image));
        let copy = if has_image || wanted / 2 < SHARE_BYTES_MIN + needs.copy { 0 } else { needs.copy };
        let mut got = Portion::new(wanted, grain, needs.instance + copy);
        own().for_each(|range| got.take(&mut free, range));
        let CoreShare { instance, image, .. } = &mut got.share;
        *image = if instance.bytes > needs.instance { instance.base + needs.instance } else { needs.image };
        instance.bytes = instance.bytes.min(needs.instance);
        shares[core] = got.share;
    }
    for (core, entry) in cores.iter().enumerate() {
        let distance = |image: &PhysAddr| node_of(*image).map(|node| distances.between(entry.node, node));
        let nearest = shares[..cores.len()].iter().map(|share| share.image).min_by_key(distance);
        shares[core].image = nearest.unwrap_or(needs.image);
    }
    // Second round: memory of nodes without cores; and any, of no node too, for those whose own
    // nodes have too little.
    for (core, slot) in shares.iter_mut().enumerate().take(cores.len()) {
        let mut got = Portion::resume(*slot, share * parts(core), grain, needs.instance);
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
struct Portion {
    share: CoreShare,
    wanted: u64,
    grain: u64,
    instance_bytes: u64,
}

impl Portion {
    fn new(wanted: u64, grain: u64, instance_bytes: u64) -> Portion {
        Portion { share: CoreShare::default(), wanted, grain, instance_bytes }
    }

    fn resume(share: CoreShare, wanted: u64, grain: u64, instance_bytes: u64) -> Portion {
        Portion { share, wanted, grain, instance_bytes }
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
    const NEEDS: Needs = Needs { instance: INSTANCE, image: PhysAddr(0x100000), copy: 0x60000 };

    fn cores(nodes: &[u32]) -> Vec<CoreEntry> {
        nodes.iter().enumerate().map(|(id, node)| CoreEntry { apic_id: id as u32, node: *node }).collect()
    }

    fn run(ram: &[(u64, u64)], nodes: &[u32], affinities: &[Affinity]) -> Option<Vec<CoreShare>> {
        let mut free = FreeRam::default();
        ram.iter().for_each(|(base, bytes)| free.add(PhysRange::new(*base, *bytes)));
        let total = free.bytes();
        let mut shares = [CoreShare::default(); CORES_MAX];
        split(free, affinities, &Distances::default(), &cores(nodes), NEEDS, &mut shares)?;
        let shares = shares[..nodes.len()].to_vec();
        let copies: std::collections::BTreeSet<_> =
            shares.iter().map(|s| s.image).filter(|at| *at != NEEDS.image).collect();
        let ranges: Vec<PhysRange> = shares
            .iter()
            .flat_map(|s| s.ram.into_iter().chain([s.instance]))
            .filter(|r| !r.is_empty())
            .chain(copies.into_iter().map(|at| PhysRange::new(at.0, NEEDS.copy)))
            .collect();
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
                assert!(shares.iter().all(|s| s.image == NEEDS.image), "without nodes there is one image");
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
        // The first core of the second node gives room for the copy that both of its cores run.
        assert_eq!([shares[0].image, shares[2].image], [NEEDS.image; 2]);
        assert_eq!([shares[1].image, shares[3].image], [shares[1].instance.end(); 2]);
        assert_eq!(shares[1].ram[0].base, shares[1].image + NEEDS.copy);
        assert_eq!(shares[3].ram[0].base, shares[3].instance.end());
    }

    #[test]
    fn a_node_with_too_little_runs_the_nearest_image() {
        let node = |number: u32, start: u64, mib: u64| Affinity {
            range: PhysRange::new(start << 20, mib << 20),
            node: number,
        };
        let mut distances = Distances::default();
        distances.set(1, 0, 30);
        distances.set(1, 2, 20);
        // Node 1 has little; node 2 is nearer to it than the loader's image.
        for (mib, has_copy) in [(3, false), (5, true)] {
            let affinities = [node(0, 0, 64), node(1, 64, mib), node(2, 96, 64)];
            let mut free = FreeRam::default();
            affinities.iter().for_each(|affinity| free.add(affinity.range));
            let mut shares = [CoreShare::default(); CORES_MAX];
            split(free, &affinities, &distances, &cores(&[0, 1, 2]), NEEDS, &mut shares).unwrap();
            assert_eq!(shares[1].image, if has_copy { shares[1].instance.end() } else { shares[2].image });
            assert_eq!(shares[2].image, shares[2].instance.end());
            assert!(node(1, 64, mib).range.contains(shares[1].instance.base));
        }
    }

    #[test]
    fn cores_without_memory_take_the_nearest() {
        let part = 64u64 << 20;
        let node = |number: u32| Affinity { range: PhysRange::new(u64::from(number) * part, part), node: number };
        // Node 2 has cores and no memory, and is nearer to node 1 than to node 0; node 3 has memory
        // and no cores.
        let mut distances = Distances::default();
        distances.set(2, 0, 40);
        distances.set(2, 1, 15);
        distances.set(2, 3, 30);
        let affinities = [node(0), node(1), node(3)];
        let mut free = FreeRam::default();
        [0, 1, 3].iter().for_each(|number| free.add(node(*number).range));
        let mut shares = [CoreShare::default(); CORES_MAX];
        split(free, &affinities, &distances, &cores(&[0, 1, 2]), NEEDS, &mut shares).unwrap();
        assert!(node(0).range.contains(shares[0].instance.base));
        assert!(node(1).range.contains(shares[1].instance.base));
        // Node 1 is full: the next is 3. The image of node 1 is nearer than the loader's; none is
        // made elsewhere.
        assert!(node(3).range.contains(shares[2].instance.base));
        assert!(node(1).range.contains(shares[1].image) && shares[2].image == shares[1].image);
    }

    #[test]
    fn too_little() {
        assert!(run(&[(0x100000, 8 << 20)], &[0; 8], &[]).is_none());
    }

    const MIB: u64 = 1 << 20;

    /// Bytes of each core, its instance included.
    fn bytes_of(shares: &[CoreShare]) -> Vec<u64> {
        let all = |share: &CoreShare| share.instance.bytes + share.ram.iter().map(|range| range.bytes).sum::<u64>();
        shares.iter().map(all).collect()
    }

    fn node(number: u32, start: u64, bytes: u64) -> Affinity {
        Affinity { range: PhysRange::new(start, bytes), node: number }
    }

    /// The shares of cores of nodes that have this memory, and memory of no node; none makes a copy
    /// of the image.
    fn of_nodes(nodes: &[u32], memory: &[Affinity], other: &[PhysRange], told: &[(u32, u32, u8)]) -> Vec<CoreShare> {
        let mut free = FreeRam::default();
        memory.iter().map(|affinity| affinity.range).chain(other.iter().copied()).for_each(|range| free.add(range));
        let mut distances = Distances::default();
        told.iter().for_each(|(from, to, distance)| distances.set(*from, *to, *distance));
        let mut shares = [CoreShare::default(); CORES_MAX];
        split(free, memory, &distances, &cores(nodes), Needs { copy: 0, ..NEEDS }, &mut shares).unwrap();
        shares[..nodes.len()].to_vec()
    }

    #[test]
    fn core_0_gets_two_parts_and_every_other_one() {
        let small = run(&[(MIB + 0x1000, 100 * MIB)], &[0; 3], &[]).unwrap();
        assert_eq!(bytes_of(&small), [50 * MIB, 25 * MIB, 25 * MIB]);
        // Of large shares the borders are at 2 MiB.
        let large = run(&[((1 << 30) + 0x1000, 1 << 30)], &[0; 3], &[]).unwrap();
        assert_eq!(bytes_of(&large), [512 * MIB - 0x1000, 256 * MIB, 256 * MIB]);
        assert!(large[1..].iter().all(|share| share.instance.base.0.is_multiple_of(2 * MIB)));
        let edge = run(&[(MIB + 0x1000, 3 * 64 * MIB)], &[0; 2], &[]).unwrap();
        assert_eq!(bytes_of(&edge), [127 * MIB - 0x1000, 64 * MIB], "from 64 MiB on");
        let below = run(&[(MIB + 0x1000, 3 * (64 * MIB - 0x1000))], &[0; 2], &[]).unwrap();
        assert_eq!(bytes_of(&below), [128 * MIB - 0x2000, 64 * MIB - 0x1000]);
        // The same in a node.
        let memory = [node(0, MIB, 40 * MIB), node(1, 64 * MIB, 20 * MIB)];
        let in_nodes = of_nodes(&[0, 0, 0, 1, 1], &memory, &[], &[]);
        assert_eq!(bytes_of(&in_nodes), [20, 10, 10, 10, 10].map(|mib| mib * MIB));
    }

    #[test]
    fn a_copy_of_the_image_is_made_where_as_much_again_is_left() {
        let least = 2 * (SHARE_BYTES_MIN + NEEDS.copy);
        for (bytes, has_copy) in [(least, true), (least - 0x2000, false)] {
            let memory = [node(0, MIB, 64 * MIB), node(1, 128 * MIB, bytes)];
            let ram = memory.map(|affinity| (affinity.range.base.0, affinity.range.bytes));
            assert_eq!(run(&ram, &[0, 1], &memory).unwrap()[1].image != NEEDS.image, has_copy);
        }
    }

    /// A core takes of what is no node's, or of another's, if it has less than half of an even
    /// split.
    #[test]
    fn only_who_has_less_than_half_takes_of_others() {
        let other = [PhysRange::new(256 * MIB, 30 * MIB)];
        let shares = |first: u64, second: u64| {
            let memory = [node(0, MIB, first), node(1, 128 * MIB, second)];
            bytes_of(&of_nodes(&[0, 1], &memory, &other, &[]))
        };
        assert_eq!(shares(45 * MIB, 15 * MIB), [45 * MIB, 15 * MIB]);
        let page = 0x1000;
        assert_eq!(shares(45 * MIB + page, 15 * MIB - page), [45 * MIB + page, 30 * MIB]);
        assert_eq!(shares(30 * MIB, 30 * MIB), [30 * MIB, 30 * MIB]);
        assert_eq!(shares(30 * MIB - page, 30 * MIB + page), [60 * MIB - page, 30 * MIB + page]);
    }

    #[test]
    fn memory_of_nodes_without_cores_goes_to_who_is_below_an_even_split() {
        let memory = [node(0, MIB, 45 * MIB), node(1, 128 * MIB, 15 * MIB), node(2, 256 * MIB, 30 * MIB)];
        assert_eq!(bytes_of(&of_nodes(&[0, 1], &memory, &[], &[])), [60 * MIB, 30 * MIB]);
    }

    #[test]
    fn the_nearest_node_is_used_up_before_the_next() {
        let (two, three) = (node(2, 256 * MIB, 30 * MIB), node(3, 384 * MIB, 30 * MIB));
        let memory = [node(0, MIB, 100 * MIB), node(1, 128 * MIB, 20 * MIB), two, three];
        let shares = of_nodes(&[0, 1], &memory, &[], &[(0, 2, 11), (1, 3, 15), (1, 2, 40)]);
        assert_eq!(bytes_of(&shares), [120 * MIB, 60 * MIB]);
        let of = |core: usize, part: Affinity| -> u64 {
            shares[core].ram.iter().map(|range| range.overlap_bytes(&part.range)).sum()
        };
        assert_eq!([of(0, two), of(0, three), of(1, two), of(1, three)], [20, 0, 10, 30].map(|mib| mib * MIB));
    }

    #[test]
    fn a_core_of_exactly_the_least_share_is_started() {
        assert_eq!(bytes_of(&run(&[(MIB, 2 * MIB)], &[0], &[]).unwrap()), [2 * MIB]);
        assert!(run(&[(MIB, 2 * MIB - 0x1000)], &[0], &[]).is_none());
    }

    /// An instance lies in one piece, with at least a page of memory behind it.
    #[test]
    fn an_instance_is_where_it_fits() {
        for (first, at) in [(INSTANCE, 16 * MIB), (INSTANCE + 0x1000, MIB)] {
            let shares = run(&[(MIB, first), (16 * MIB, 32 * MIB)], &[0], &[]).unwrap();
            assert_eq!(shares[0].instance, PhysRange::new(at, INSTANCE));
            assert!(shares[0].ram[0].bytes >= 0x1000);
        }
        // A border at 2 MiB would leave too little: it is where the memory ends.
        for start in [0x1f_f000, 0x1c_0000] {
            let memory = [node(0, 2 * MIB, 512 * MIB), node(1, 1024 * MIB + start, 2 * MIB)];
            let shares = of_nodes(&[0, 1], &memory, &[], &[]);
            assert_eq!(shares[1].instance, PhysRange::new(1024 * MIB + start, INSTANCE));
            assert_eq!(bytes_of(&shares)[1], 2 * MIB);
        }
    }
}
