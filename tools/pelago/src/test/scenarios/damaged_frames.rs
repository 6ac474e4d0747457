//! Tier 4: damaged Ethernet, ARP, IP, ICMP, UDP and TCP harm nobody: after thousands of them the
//! guest answers ping and serves a page.
//!
//! This test is the whole network: the card's frames come and go as datagrams, so neither root nor
//! a tap is needed, and neither the host's stack nor the emulator's (which such frames crash) is
//! between. The damage is drawn from a seed: a failure can be repeated. Half of the damaged frames
//! get right checksums again, or nothing behind a checksum would be tried.

use crate::host::late::late;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::random::Random;
use crate::test::scenarios::web;
use anyhow::{Context, Result};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const FRAMES: usize = 4000;
/// So many go out without a pause: fewer than the card's ring holds.
const BURST: usize = 32;
const PAUSE: Duration = Duration::from_millis(4);
const SEED: u64 = 0x5eed_0000_0000_0001;
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(300);
const FRAME_BYTES_MAX: usize = 1514;
const PAGE: &[u8] = b"a page that damaged frames cannot change\n";

/// QEMU's first card.
const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const GUEST_IP: [u8; 4] = [10, 0, 2, 15];
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const OUR_IP: [u8; 4] = [10, 0, 2, 77];
pub const ADDRESSES: &str = "pelago.ip=10.0.2.15/24,10.0.2.77";
/// Frames for others come too: whom a frame is for may be damaged.
const PROMISCUOUS: &str = "pelago.promiscuous";
const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const TCP_AT: usize = ETHERNET_BYTES + IP_BYTES;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

pub fn scenarios() -> Vec<Scenario> {
    let matrix = MachineType::ALL.into_iter().flat_map(|machine| [1, 2].map(|cpus| (machine, cpus)));
    matrix
        .map(|(machine, cpus)| {
            Scenario::shared(4, format!("damaged-frames/{}/{cpus}", machine.name()), move |bench| {
                check(bench, machine, cpus)
            })
        })
        .collect()
}

fn check(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let (wire, ports) = Wire::new()?;
    let guest = bench.boot(machine, cpus, &web::SERVER, |root, machine: &mut Machine| {
        machine.frames = Some(ports);
        machine.command_line.extend([ADDRESSES, PROMISCUOUS].map(str::to_owned));
        root.file("root/www/file", 0o644, PAGE.to_vec());
        Ok(())
    })?;
    with_console(guest, |guest| under_fire(guest, &wire))
}

fn under_fire(guest: &mut Guest, wire: &Wire) -> Result<()> {
    guest.expect("pelago: ready", web::READY_LIMIT)?;
    guest.heard("ip: the card is set: Settings { promiscuous: true }", ANSWER_LIMIT)?;
    wire.ping(0).context("before any damaged frame")?;
    wire.page(1024).context("before any damaged frame")?;
    let mut random = Random(SEED);
    let good = good_frames();
    for number in 1..=FRAMES {
        // The emulator may be slow to take them; one that is lost is one less.
        let _ = wire.socket.send(&damaged(&good[random.below(good.len())], &mut random));
        if number % BURST == 0 {
            std::thread::sleep(PAUSE);
        }
        if number % 1000 == 0 {
            let after = || format!("after {number} damaged frames of seed {SEED:#x}");
            wire.ping(number as u16).with_context(after)?;
            wire.page(1024 + number as u16).with_context(after)?;
        }
    }
    Ok(())
}

/// The other end of the guest's cable, and the one host there.
pub struct Wire {
    socket: UdpSocket,
}

impl Wire {
    /// Also ports of this machine: the emulator's, and ours.
    pub fn new() -> Result<(Wire, (u16, u16))> {
        let socket = UdpSocket::bind("127.0.0.1:0").context("no free port")?;
        let emulators = UdpSocket::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port();
        socket.connect(("127.0.0.1", emulators))?;
        let ours = socket.local_addr()?.port();
        Ok((Wire { socket }, (emulators, ours)))
    }

    /// Tells the guest so many times who we are, which it did not ask.
    pub fn flood(&self, frames: usize) -> Result<()> {
        let unsolicited = arp(2, GUEST_MAC);
        for number in 1..=frames {
            self.send(&unsolicited)?;
            if number % BURST == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        self.socket.send(frame).map(drop).context("the emulator takes no frames")
    }

    /// The next frame, if one comes before `end`; answers ARP by the way, as a host would.
    fn receive(&self, end: Instant) -> Result<Option<Vec<u8>>> {
        let mut buffer = [0; 2048];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let Ok(count) = self.socket.recv(&mut buffer) else { continue };
            let frame = &buffer[..count];
            if is_arp_request(frame) {
                self.send(&arp(2, GUEST_MAC))?;
            } else {
                return Ok(Some(frame.to_vec()));
            }
        }
    }

    /// Sends echo requests until one is answered.
    pub fn ping(&self, number: u16) -> Result<()> {
        let limit = Instant::now() + ANSWER_LIMIT;
        while Instant::now() < limit {
            self.send(&echo_request(number))?;
            let end = Instant::now() + AGAIN;
            while let Some(frame) = self.receive(end)? {
                if is_echo_reply(&frame, number) {
                    return Ok(());
                }
            }
        }
        // What the guest said of it, `with_console` looks at.
        Err(late(format!("ping is not answered within {} s", ANSWER_LIMIT.as_secs()), &[]))
    }

    /// Gets the page by the least of TCP that does: one connection at a time, whatever is lost is
    /// asked for again from the start.
    fn page(&self, first_port: u16) -> Result<()> {
        let limit = Instant::now() + ANSWER_LIMIT;
        for port in first_port.. {
            if Instant::now() > limit {
                break;
            }
            let answer = self.connection(port)?;
            if answer.ends_with(PAGE) && answer.starts_with(b"HTTP/1.") {
                return Ok(());
            }
        }
        Err(late(format!("no page came within {} s", ANSWER_LIMIT.as_secs()), &[]))
    }

    fn connection(&self, port: u16) -> Result<Vec<u8>> {
        let ours = 1000;
        self.send(&segment(port, ours, 0, SYN, &[], b""))?;
        let (mut answer, mut expected) = (Vec::new(), None);
        let end = Instant::now() + 4 * AGAIN;
        while let Some(frame) = self.receive(end)? {
            let Some((theirs, flags, data)) = segment_for(&frame, port) else { continue };
            match expected {
                _ if flags & RST != 0 => break,
                None if flags & (SYN | ACK) == SYN | ACK => {
                    let next = theirs.wrapping_add(1);
                    expected = Some(next);
                    self.send(&segment(port, ours + 1, next, ACK | PSH, &[], REQUEST))?;
                }
                Some(next) if theirs == next => {
                    answer.extend_from_slice(data);
                    let next = next.wrapping_add(data.len() as u32).wrapping_add(u32::from(flags & FIN));
                    expected = Some(next);
                    let sent = ours + 1 + REQUEST.len() as u32;
                    let ended = flags & FIN != 0;
                    self.send(&segment(port, sent, next, if ended { ACK | FIN } else { ACK }, &[], b""))?;
                    if ended {
                        break;
                    }
                }
                _ => {}
            }
        }
        Ok(answer)
    }
}

const REQUEST: &[u8] = b"GET /file HTTP/1.0\r\n\r\n";

/// Sequence number, flags and data of a segment from the guest's web server to this port.
fn segment_for(frame: &[u8], port: u16) -> Option<(u32, u8, &[u8])> {
    let is_ours = frame.get(12..14)? == [8, 0] && frame[23] == 6 && frame.get(26..34)? == [GUEST_IP, OUR_IP].concat();
    let header = frame.get(TCP_AT..TCP_AT + 20)?;
    let length = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let data = frame.get(TCP_AT + usize::from(header[12] >> 4) * 4..ETHERNET_BYTES + length)?;
    let is_ours = is_ours && header[..2] == 80u16.to_be_bytes() && header[2..4] == port.to_be_bytes();
    is_ours.then(|| (u32::from_be_bytes([header[4], header[5], header[6], header[7]]), header[13], data))
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

// ---- Frames
// ------------------------------------------------------------------------------------------

fn good_frames() -> Vec<Vec<u8>> {
    let tcp = |flags: u8, options: &[u8], data: &[u8]| segment(40000, 0x1234_5678, 0x9abc_def0, flags, options, data);
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
        tcp(SYN, &[2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2, 1, 1], b""),
        tcp(ACK | PSH, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], b"GET / HTTP/1.0\r\n\r\n"),
        tcp(ACK | FIN, &[], b""),
        tcp(RST, &[], b""),
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

/// From `port` to the web server.
fn segment(port: u16, sequence: u32, acknowledged: u32, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() as u8 / 4;
    let mut segment = [port.to_be_bytes(), 80u16.to_be_bytes()].concat();
    segment
        .extend([sequence.to_be_bytes(), acknowledged.to_be_bytes(), [words << 4, flags, 0xff, 0xff], [0; 4]].concat());
    segment.extend_from_slice(options);
    segment.extend_from_slice(data);
    packet(6, &segment)
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

// ---- Damage
// ------------------------------------------------------------------------------------------

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
