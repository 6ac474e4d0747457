//! How a device is started and gone on with, by one that keeps what it is told.

use super::*;
use crate::takeover::{HEIRS_MAX, Left, Unfit};
use crate::testing::Bell;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

const OFFERED: u64 = 0b1011 | 1 << 40;
const ADDRESSES: QueueAddresses = QueueAddresses { descriptors: 0x1000, available: 0x2000, used: 0x3000 };

struct Device {
    statuses: Vec<u8>,
    /// Looks at the status after a reset until it is done.
    resets_for: u32,
    takes_features: bool,
    features: u64,
    queues: Vec<(u16, u16, QueueAddresses)>,
    messages: Vec<(u16, u16)>,
    notified: Rc<RefCell<Vec<u16>>>,
}

/// One that is not reset yet.
fn device() -> Device {
    let statuses = Vec::from([status::RUNNING]);
    Device {
        statuses,
        resets_for: 2,
        takes_features: true,
        features: 0,
        queues: Vec::new(),
        messages: Vec::new(),
        notified: Rc::default(),
    }
}

impl Transport for Device {
    fn status(&mut self) -> u8 {
        let last = self.statuses.last().copied().unwrap_or(0);
        match last {
            0 if self.resets_for > 0 => {
                self.resets_for -= 1;
                0xff
            }
            _ if self.takes_features => last,
            _ => last & !status::FEATURES_OK,
        }
    }

    fn set_status(&mut self, status: u8) {
        self.statuses.push(status);
    }

    fn features(&mut self) -> u64 {
        OFFERED
    }

    fn set_features(&mut self, features: u64) {
        self.features = features;
    }

    fn queue_entries(&mut self, queue: u16) -> u16 {
        256 + queue
    }

    fn set_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) {
        self.queues.push((queue, entries, addresses));
    }

    fn adopt_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) -> bool {
        self.queues.contains(&(queue, entries, addresses))
    }

    fn set_message(&mut self, queue: u16, message: u16) {
        self.messages.push((queue, message));
    }

    fn notify(&mut self, queue: u16) {
        self.notified.borrow_mut().push(queue);
    }

    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell> {
        let notified = self.notified.clone();
        Box::new(Bell(move || notified.borrow_mut().push(queue)))
    }

    fn configuration(&mut self, offset: u64) -> u8 {
        offset as u8 + 1
    }

    fn acknowledge(&mut self) -> bool {
        self.notified.borrow_mut().pop().is_some()
    }
}

struct Owner {
    reaches_memory: bool,
    may_reach: bool,
    looks: u32,
}

const OWNER: Owner = Owner { reaches_memory: false, may_reach: true, looks: 5 };

impl DeviceOwner for Owner {
    fn reaches_memory(&mut self) -> bool {
        self.reaches_memory
    }

    fn enable_bus_master(&mut self) -> bool {
        self.reaches_memory = self.may_reach;
        self.may_reach
    }

    fn has_timed_out(&mut self) -> bool {
        self.looks -= 1;
        self.looks == 0
    }
}

#[test]
fn a_device_is_reset_before_it_reaches_memory_and_then_agrees() {
    let (mut device, mut owner) = (Box::new(device()), OWNER);
    // Of what is wanted the second is not offered whole; a part of the third is needed anyway.
    assert_eq!(reset(&mut device, 1, &[1 << 40, 0b110, 0b1001], &mut owner), Ok(0b1001 | 1 << 40));
    assert!(owner.reaches_memory && device.features == 0b1001 | 1 << 40);
    run(&mut device);
    assert_eq!(device.statuses, [status::RUNNING, 0, 3, 11, 15]);
}

#[test]
fn a_device_that_cannot_be_started_is_left_reset() {
    let started = |change: fn(&mut Device, &mut Owner), needed| {
        let (mut device, mut owner) = (device(), OWNER);
        change(&mut device, &mut owner);
        let why = reset(&mut device, needed, &[], &mut owner).unwrap_err();
        (why, device.statuses.len(), owner.reaches_memory)
    };
    assert_eq!(started(|device, _| device.resets_for = 5, 1), (ResetError::NoReset, 2, false));
    assert_eq!(started(|_, owner| owner.may_reach = false, 1), (ResetError::NoMemoryAccess, 2, false));
    assert_eq!(started(|_, _| (), 0b101), (ResetError::Features, 3, true));
    assert_eq!(started(|device, _| device.takes_features = false, 1), (ResetError::Features, 4, true));
}

#[test]
fn a_device_is_gone_on_with_as_it_was_left() {
    let queues = [(0, 256, ADDRESSES), (1, 256, ADDRESSES)];
    let adopted = |change: fn(&mut Device, &mut Owner), agreed| {
        let (mut device, mut owner) = (Box::new(device()), Owner { reaches_memory: true, ..OWNER });
        queues.iter().for_each(|(queue, entries, addresses)| device.set_queue(*queue, *entries, *addresses));
        change(&mut device, &mut owner);
        adopt(&mut device, &mut owner, agreed, &queues)
    };
    assert_eq!(adopted(|_, _| (), 0b1011), Ok(()));
    assert_eq!(adopted(|_, owner| owner.reaches_memory = false, 1), Err(NotRunning::Quiet));
    assert_eq!(adopted(|device, _| device.set_status(0x4f), 1), Err(NotRunning::Status(0x4f)));
    assert_eq!(adopted(|_, _| (), 0b101), Err(NotRunning::Features));
    assert_eq!(adopted(|device, _| _ = device.queues.pop(), 1), Err(NotRunning::Queue(1)));
}

#[test]
fn a_successor_is_counted_before_it_goes_on() {
    let adopted = |features, heirs, needed| {
        let (mut device, mut owner, mut kept) = (device(), Owner { reaches_memory: true, ..OWNER }, None);
        let found = Left { features, heirs }.adopt(&mut device, &mut owner, needed, &[], |heirs| kept = Some(heirs));
        (found, kept)
    };
    assert_eq!(adopted(Some(1), 0, 0b10), (Ok(1), Some(1)));
    assert_eq!(adopted(Some(1), HEIRS_MAX - 1, 0b10), (Ok(1), Some(HEIRS_MAX)));
    assert_eq!(adopted(Some(1), HEIRS_MAX, 0b10), (Err(Unfit::Heirs(HEIRS_MAX)), None));
    assert_eq!(adopted(None, 0, 0b10), (Err(Unfit::Starting), None));
    for needed in [1, 0b101] {
        let lacking = (Err(Unfit::Device(NotRunning::Features)), Some(1));
        assert_eq!(adopted(Some(0b101), 0, needed), lacking);
        assert_eq!(adopted(Some(1), 0, 0b101), lacking);
    }
}

#[test]
fn a_transport_in_a_box_is_that_transport() {
    let mut boxed = Box::new(device());
    let transport: &mut dyn Transport = &mut boxed;
    transport.set_queue(2, 8, ADDRESSES);
    transport.set_message(4, 3);
    transport.notify(7);
    transport.doorbell(8).ring();
    assert_eq!((transport.queue_entries(3), transport.configuration(8)), (259, 9));
    assert_eq!(*boxed.notified.borrow(), [7, 8]);
    let transport: &mut dyn Transport = &mut boxed;
    assert!(transport.acknowledge() && transport.acknowledge() && !transport.acknowledge());
    assert_eq!((boxed.queues, boxed.messages), (vec![(2, 8, ADDRESSES)], vec![(4, 3)]));
}
