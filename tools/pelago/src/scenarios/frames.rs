//! Tier 4: damaged Ethernet, ARP, IP, ICMP, UDP and TCP harm nobody: after thousands of them the guest answers ping and curl.
//!
//! Frames come in beside the user network, by a hub in the emulator, so neither root nor a tap is needed. The damage is drawn from a
//! seed: a failure can be repeated. Half of the damaged frames get right checksums again, or nothing behind a checksum would be tried.

use crate::emulator::{Machine, MachineType};
use crate::scenario::{Bench, Scenario, with_console};
use crate::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const FRAMES: usize = 4000;
/// So many go out without a pause; the card's ring and the hub's queue hold more.
const BURST: usize = 32;
const PAUSE: Duration = Duration::from_millis(4);
const SEED: u64 = 0x5eed_0000_0000_0001;
const PING_LIMIT: Duration = Duration::from_secs(10);
const FRAME_BYTES_MAX: usize = 1514;

/// QEMU's first card.
const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// QEMU's user network gives this one first.
const GUEST_IP: [u8; 4] = [10, 0, 2, 15];
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const OUR_IP: [u8; 4] = [10, 0, 2, 77];
const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;

pub fn scenarios() -> Vec<Scenario> {
    let matrix = MachineType::ALL.into_iter().flat_map(|machine| [1, 2].map(|cpus| (machine, cpus)));
    matrix
        .map(|(machine, cpus)| {
            Scenario::shared(4, format!("frames/{}/{cpus}", machine.name()), move |bench| check(bench, machine, cpus))
        })
        .collect()
}

fn check(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let ours = UdpSocket::bind("127.0.0.1:0").context("no free port")?;
    let emulators = UdpSocket::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port();
    ours.connect(("127.0.0.1", emulators))?;
    let our_port = ours.local_addr()?.port();
    let page = vec![b'y'; 1000];
    let (guest, address) = web::serve_with(bench, machine, cpus, page.clone(), |machine: &mut Machine| {
        machine.frames = Some((emulators, our_port));
    })?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        web::fetch(&format!("{address}/ready"), web::READY_LIMIT)?;
        ping(&ours, 0).context("before any damaged frame")?;
        let mut random = Random(SEED);
        let good = good_frames();
        for number in 1..=FRAMES {
            let frame = damaged(&good[random.below(good.len())], &mut random);
            // The emulator may be slow to take them; one that is lost is one less.
            let _ = ours.send(&frame);
            if number % BURST == 0 {
                std::thread::sleep(PAUSE);
            }
            if number % 1000 == 0 {
                ping(&ours, number as u16).with_context(|| format!("after {number} damaged frames"))?;
            }
        }
        let got = web::fetch(&format!("{address}/file"), web::READY_LIMIT)
            .with_context(|| format!("after {FRAMES} damaged frames"))?;
        ensure!(got == page, "after {FRAMES} damaged frames another page came");
        Ok(())
    })
}

/// Sends echo requests until one is answered; answers the guest's ARP meanwhile, as a host would.
fn ping(socket: &UdpSocket, number: u16) -> Result<()> {
    let end = Instant::now() + PING_LIMIT;
    let request = echo_request(number);
    let mut buffer = [0; 2048];
    while Instant::now() < end {
        socket.send(&request).context("the emulator takes no frames")?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        while let Ok(count) = socket.recv(&mut buffer) {
            let frame = &buffer[..count];
            if is_arp_request(frame) {
                let mut asker = [0; 6];
                asker.copy_from_slice(&frame[22..28]);
                socket.send(&arp(2, asker)).context("the emulator takes no frames")?;
                socket.send(&request).context("the emulator takes no frames")?;
            }
            if is_echo_reply(frame, number) {
                return Ok(());
            }
        }
    }
    bail!("ping is not answered within {} s", PING_LIMIT.as_secs())
}

fn is_arp_request(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 6]) && frame.get(20..22) == Some(&[0, 1]) && frame.get(38..42) == Some(&OUR_IP)
}

fn is_echo_reply(frame: &[u8], number: u16) -> bool {
    frame.get(12..14) == Some(&[8, 0])
        && frame.get(23) == Some(&1)
        && frame.get(26..34) == Some(&[GUEST_IP, OUR_IP].concat()[..])
        && frame.get(34) == Some(&0)
        && frame.get(40..42) == Some(&number.to_be_bytes()[..])
}

// ---- Frames -------------------------------------------------------------------------------------------------------------------------

fn good_frames() -> Vec<Vec<u8>> {
    let tcp = |flags: u8, options: &[u8], data: &[u8]| {
        let words = 5 + options.len() / 4;
        let mut segment = [40000u16.to_be_bytes(), 80u16.to_be_bytes()].concat();
        segment.extend([
            0x12,
            0x34,
            0x56,
            0x78,
            0x9a,
            0xbc,
            0xde,
            0xf0,
            (words as u8) << 4,
            flags,
            0xff,
            0xff,
            0,
            0,
            0,
            0,
        ]);
        segment.extend_from_slice(options);
        segment.extend_from_slice(data);
        packet(6, &segment)
    };
    let udp = |from: u16, to: u16, data: &[u8]| {
        let length = 8 + data.len() as u16;
        let mut datagram = [from.to_be_bytes(), to.to_be_bytes(), length.to_be_bytes(), [0, 0]].concat();
        datagram.extend_from_slice(data);
        packet(17, &datagram)
    };
    // BOOTP reply with DHCP's magic number and the option `offer` (RFC 2131).
    let mut offer = vec![0; 240];
    offer[..4].copy_from_slice(&[2, 1, 6, 0]);
    offer[236..].copy_from_slice(&[99, 130, 83, 99]);
    offer.extend([53, 1, 2, 54, 4, 10, 0, 2, 77, 51, 4, 0, 0, 1, 0, 255]);
    let mut fragment = echo_request(9);
    fragment[20] = 0x20;
    vec![
        arp(1, [0; 6]),
        arp(2, GUEST_MAC),
        echo_request(1),
        fragment,
        udp(67, 68, &offer),
        udp(1234, 5678, b"hello"),
        tcp(0x02, &[2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2, 1, 1], b""),
        tcp(0x18, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], b"GET / HTTP/1.0\r\n\r\n"),
        tcp(0x11, &[], b""),
        tcp(0x04, &[], b""),
    ]
}

fn ethernet(kind: u16, body: &[u8]) -> Vec<u8> {
    [&GUEST_MAC[..], &OUR_MAC, &kind.to_be_bytes(), body].concat()
}

/// Operation 1 asks for the guest, 2 tells `target` about us (RFC 826).
fn arp(operation: u8, target: [u8; 6]) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, operation];
    ethernet(0x0806, &[&head[..], &OUR_MAC, &OUR_IP, &target, &GUEST_IP].concat())
}

fn packet(protocol: u8, body: &[u8]) -> Vec<u8> {
    let length = ((IP_BYTES + body.len()) as u16).to_be_bytes();
    let head = [0x45, 0, length[0], length[1], 0, 7, 0, 0, 64, protocol, 0, 0];
    let mut frame = ethernet(0x0800, &[&head[..], &OUR_IP, &GUEST_IP, body].concat());
    fix_checksums(&mut frame);
    frame
}

fn echo_request(number: u16) -> Vec<u8> {
    let number = number.to_be_bytes();
    packet(1, &[&[8, 0, 0, 0, 0x50, 0x45, number[0], number[1]][..], &[0x55; 32]].concat())
}

/// Puts right checksums of IP and what it carries where the frame still has such fields.
fn fix_checksums(frame: &mut [u8]) {
    let Some(first) = frame.get(ETHERNET_BYTES).copied() else { return };
    let body = ETHERNET_BYTES + usize::from(first & 15) * 4;
    if frame.get(12..14) != Some(&[8, 0]) || first & 15 < 5 || frame.len() < body {
        return;
    }
    put_checksum(frame, ETHERNET_BYTES, body, 10, 0);
    let protocol = frame[23];
    let field = match protocol {
        1 => 2,
        6 => 16,
        17 => 6,
        _ => return,
    };
    let length = frame.len() - body;
    let addresses: u32 = frame[26..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let pseudo = if protocol == 1 { 0 } else { addresses + u32::from(protocol) + length as u32 };
    put_checksum(frame, body, frame.len(), field, pseudo);
}

/// RFC 1071, over `from..to`, into the field at `from + field`.
fn put_checksum(frame: &mut [u8], from: usize, to: usize, field: usize, start: u32) {
    if from + field + 2 > to {
        return;
    }
    frame[from + field..from + field + 2].fill(0);
    let words =
        frame[from..to].chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low)));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[from + field..from + field + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

// ---- Damage -------------------------------------------------------------------------------------------------------------------------

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit.max(1)
    }
}

fn damaged(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut frame = good.to_vec();
    for _ in 0..=random.below(3) {
        // The destination stays: another one is the card's business, not the guest's.
        let place = 6 + random.below(frame.len().saturating_sub(6));
        let Some(byte) = frame.get_mut(place) else { break };
        match random.below(6) {
            0 => *byte ^= 1 << random.below(8),
            1 => *byte = 0,
            2 => *byte = 0xff,
            3 => *byte = random.below(256) as u8,
            4 => frame.truncate(place),
            _ => {
                let junk = random.below(FRAME_BYTES_MAX - frame.len().min(FRAME_BYTES_MAX - 1));
                frame.extend((0..junk).map(|_| random.below(256) as u8));
            }
        }
    }
    if random.below(2) == 0 {
        fix_checksums(&mut frame);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_frames_have_good_checksums() {
        let sum = |bytes: &[u8]| {
            let total: u32 =
                bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
            (total & 0xffff) + (total >> 16)
        };
        let request = echo_request(3);
        assert_eq!((sum(&request[14..34]), sum(&request[34..])), (0xffff, 0xffff));
    }

    #[test]
    fn any_frame_can_be_damaged_and_mended() {
        let mut random = Random(SEED);
        for good in good_frames() {
            for _ in 0..2000 {
                let frame = damaged(&good, &mut random);
                assert!(frame.len() <= 2 * FRAME_BYTES_MAX);
            }
        }
    }
}
