//! A backtrace reads RAM that the program sees, and nothing else: a read of anything else here
//! would be one outside the fake RAM.

use super::World;
use crate::arch::context::Registers;
use crate::arch::paging;
use crate::backtrace::print_user;
use crate::hardware;
use crate::memory::{DIRECT_MAP, DIRECT_MAP_BYTES, PAGE_BYTES, PhysAddr, phys_to_virt};
use crate::objects::domain::Death;
use crate::objects::mapping::PageRun;
use crate::objects::segment::Kind;
use crate::objects::{Domain, Ptr, Range, Segment, user_memory};
use abi::DeathCause;
use abi::layout::protection::READ;

const PAGE: u64 = PAGE_BYTES as u64;
const LARGE: u64 = 512 * PAGE;

/// Maps and fills `pages` of a new segment at `address`.
fn map(world: &mut World, range: Ptr<Range>, address: u64, pages: u64, kind: Option<Kind>) {
    let kernel = &mut *world.kernel;
    let segment = match kind {
        Some(kind) => Ptr::<Segment>::new_imported(kernel, world.ram, pages, kind),
        None => Ptr::<Segment>::new_anonymous(kernel, world.ram, pages),
    }
    .unwrap();
    let place = PageRun { start: address, pages };
    range.map(kernel, place, segment, 0, [READ, READ]).unwrap();
    assert!(range.fill(kernel, place).unwrap() > 0 && paging::view(range.root(), address).is_some());
    kernel.release(segment);
}

#[test]
fn only_ram_that_the_program_sees_is_read() {
    let mut world = World::new(300);
    let domain = Ptr::<Domain>::create(&mut world.kernel, world.ram, 0, super::name()).unwrap();
    let (range, root) = (domain.range(), domain.range().root());
    // Registers below and above 4 GiB, in small and large pages, cached too, and past the direct
    // map.
    let mut devices = Vec::new();
    for base in [0, 0xfee0_0000, 0xfec0_0000, 1 << 36, DIRECT_MAP_BYTES, 1 << 51] {
        for (pages, uncached) in [(1, true), (1, false), (512, true)] {
            let address = (devices.len() as u64 + 1) * LARGE;
            map(
                &mut world,
                range,
                address,
                pages,
                Some(Kind::Imported { base: PhysAddr(base), uncached, is_ram: false }),
            );
            devices.push(address);
        }
    }
    for address in devices {
        for offset in [0, 8, PAGE - 8, PAGE - 7, PAGE - 1] {
            assert_eq!(user_memory::peek(root, address + offset), None, "{address:#x}");
        }
    }
    let ram = 64 * LARGE;
    map(&mut world, range, ram, 2, None);
    let frame = paging::view(root, ram).unwrap().address();
    // SAFETY: a page of the fake RAM, that of the segment.
    unsafe { phys_to_virt(frame).cast::<u64>().add(3).write(0x1234_5678) };
    assert_eq!(user_memory::peek(root, ram + 24), Some(0x1234_5678));
    assert_eq!(user_memory::peek(root, ram + 21), Some(0x1234_5678 << 24));
    let nowhere = [ram + PAGE - 7, ram + 2 * PAGE, 0, 7, 1 << 47, 1 << 63, u64::MAX, DIRECT_MAP, 0xffff_ffff_8000_0000];
    for address in nowhere {
        assert_eq!(user_memory::peek(root, address), None, "{address:#x}");
    }
    // Two frames, in a page each.
    for (page, words) in [(0, [ram + PAGE, 0x11]), (1, [0, 0x12])] {
        let frame = paging::view(root, ram + page * PAGE).unwrap().address();
        // SAFETY: as above.
        unsafe { phys_to_virt(frame).cast::<[u64; 2]>().write(words) };
    }
    hardware::take_port_writes();
    let mut registers = Registers::new();
    (registers.rip, registers.rbp) = (0x10, ram);
    print_user(&registers, root, "it");
    let printed = hardware::take_port_writes().into_iter().map(|(_, byte)| byte).collect();
    assert_eq!(String::from_utf8(printed).unwrap(), "bt: 0x10 it\nbt: 0x11 it\nbt: 0x12 it\n");
    world.kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
    world.kernel.release(domain);
    world.assert_empty();
}
