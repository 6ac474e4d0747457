//! The contract `sockets` over channels, what goes with messages, and the machine's log.

use super::*;
use channel::BulkSpan;
use contracts::descriptions::{DescriptionId, Origin, Right};
use contracts::process::{Credentials, IdChange};
use contracts::sockets::{Received, SendOptions, SocketAddress, SocketOption, SocketOptionName};

const MS: u64 = 1_000_000;
/// Where in its bulk a client has bytes.
const SPAN_AT: u32 = 4096;

type Answer<T> = Result<T, CallError<DescriptionError>>;

fn named(name: &str) -> Address {
    Address::Local(LocalAddress { file: None, name: format!("\0{name}").into_bytes() })
}

fn right(origin: Origin, token: u64) -> Right {
    Right { origin, token, note: 0 }
}

impl Program {
    async fn send(&self, id: DescriptionId, bytes: &[u8], rights: &[Right], wait: bool) -> Answer<u32> {
        self.sockets.bulk().write(SPAN_AT as usize, bytes).unwrap();
        let span = BulkSpan { offset: SPAN_AT, length: bytes.len() as u32 };
        self.sockets.send(id, span, None, rights.to_vec(), SendOptions { wait, more: false }).await
    }

    async fn receive(&self, id: DescriptionId, length: u32, wait: bool) -> Answer<(Received, Vec<u8>)> {
        let got = self.sockets.receive(id, BulkSpan { offset: SPAN_AT, length }, false, 9, wait).await?;
        let mut bytes = vec![0; got.bytes as usize];
        self.sockets.bulk().read(SPAN_AT as usize, &mut bytes).unwrap();
        Ok((got, bytes))
    }

    async fn socket(&self, kind: SocketKind) -> DescriptionId {
        self.sockets.socket(Family::Local, kind).await.unwrap()
    }

    async fn listening(&self, name: &str) -> DescriptionId {
        let id = self.socket(SocketKind::Stream).await;
        self.sockets.bind(id, named(name)).await.unwrap();
        self.sockets.listen(id, 0).await.unwrap();
        id
    }
}

async fn is_settled(exporter: &ProcessClient) -> u64 {
    let event = exporter.next_event().await;
    let ProcessEvent::Settled { ticket } = event else { panic!("{event:?}") };
    ticket
}

#[test]
fn connections_are_made_and_tell_who_is_at_the_other_end() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let child = first.child(&server, 20).await;
        child.process.set_ids(true, IdChange::All([Some(3), Some(4), Some(5)])).await.unwrap();
        let listener = first.listening("x").await;
        assert_eq!(first.sockets.accept(listener, false).await, denied(DescriptionError::WouldBlock));
        let mut accepting = pin!(first.sockets.accept(listener, true));
        is_sent(accepting.as_mut()).await;
        runtime::take_in_all().await;
        let one = child.socket(SocketKind::Stream).await;
        child.sockets.bind(one, named("own")).await.unwrap();
        child.sockets.connect(one, named("x"), true).await.unwrap();
        let accepted = accepting.await.unwrap();
        assert_eq!(accepted.peer, named("own"));
        let option = |id, name| first.sockets.option(id, name);
        let who = Credentials { process: child.id, user: 4, group: 0 };
        assert_eq!(option(accepted.id, SocketOptionName::Peer).await, Ok(SocketOption::Peer(who)));
        assert_eq!(option(listener, SocketOptionName::Listening).await, Ok(SocketOption::Listening(true)));
        assert_eq!(option(accepted.id, SocketOptionName::Listening).await, Ok(SocketOption::Listening(false)));
        assert_eq!(option(accepted.id, SocketOptionName::Linger).await, denied(DescriptionError::NotSupported));
        // What is received tells who really sent it.
        first.sockets.set_option(accepted.id, SocketOption::TellsSender(true)).await.unwrap();
        assert_eq!(child.send(one, b"hello", &[], true).await, Ok(5));
        let (got, bytes) = first.receive(accepted.id, 9, true).await.unwrap();
        let real = Credentials { process: child.id, user: 3, group: 0 };
        assert_eq!((&bytes[..], got.sender), (&b"hello"[..], Some(real)));
        // A second one waits for room, and gets it.
        let [two, three] = [child.socket(SocketKind::Stream).await, child.socket(SocketKind::Stream).await];
        child.sockets.connect(two, named("x"), true).await.unwrap();
        assert_eq!(child.sockets.connect(three, named("x"), false).await, denied(DescriptionError::WouldBlock));
        let mut connecting = pin!(child.sockets.connect(three, named("x"), true));
        is_sent(connecting.as_mut()).await;
        runtime::take_in_all().await;
        first.sockets.accept(listener, false).await.unwrap();
        assert_eq!(connecting.await, Ok(()));
    });
}

#[test]
fn what_is_of_networks_is_refused() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let refused = first.sockets.socket(Family::Internet, SocketKind::Stream).await;
        assert_eq!(refused, denied(DescriptionError::NotSupported));
        let id = first.socket(SocketKind::Stream).await;
        let far = Address::Internet(SocketAddress { address: [127, 0, 0, 1], port: 80 });
        let nowhere = denied(DescriptionError::AddressNotAvailable);
        assert_eq!(first.sockets.bind(id, far.clone()).await, nowhere);
        assert_eq!(first.sockets.connect(id, far, true).await, nowhere);
        let set = |option| first.sockets.set_option(id, option);
        assert_eq!(set(SocketOption::KeepAlive(true)).await, Ok(()));
        assert_eq!(set(SocketOption::NoDelay(true)).await, denied(DescriptionError::NotSupported));
        assert_eq!(set(SocketOption::Listening(true)).await, denied(DescriptionError::Invalid));
    });
}

#[test]
fn a_stream_is_received_piece_behind_piece() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        let (one, two) = first.sockets.pair(SocketKind::Stream).await.unwrap();
        assert_eq!(first.receive(two, 9, false).await, denied(DescriptionError::WouldBlock));
        let bytes: Vec<u8> = (0..9000).map(|number: u32| (number % 251) as u8).collect();
        for part in bytes.chunks(3000) {
            assert_eq!(first.send(one, part, &[], false).await, Ok(3000));
        }
        assert_eq!(first.receive(two, 9000, true).await.unwrap().1, bytes);
        // Who waits for room has sent all, in the end.
        while first.send(one, &bytes, &[], false).await.is_ok() {}
        let mut sending = pin!(first.send(one, &bytes, &[], true));
        is_sent(sending.as_mut()).await;
        runtime::take_in_all().await;
        while first.receive(two, 60_000, false).await.is_ok() {}
        assert!(sending.await.is_ok());
    });
}

/// Whoever exported something hears of its ticket once, whatever becomes of the message.
#[test]
fn tickets_are_settled_whether_they_were_sent_or_not() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let [fs, tcp, volume] = ["fs", "tcp", "volume"].map(|name| component(&server, name));
        let first = Program::first(&server).await;
        let (one, two) = first.sockets.pair(SocketKind::Packets).await.unwrap();
        // Refused.
        assert_eq!(first.send(999, b"x", &[right(Origin::Files, 1)], true).await, denied(DescriptionError::BadId));
        assert_eq!(is_settled(&fs).await, 1);
        // Given up.
        while first.send(one, &[1; 60_000], &[], false).await.is_ok() {}
        let rights = [right(Origin::Network, 2), right(Origin::Volume, 3)];
        assert!(runtime::timeout(MS, first.send(one, &[1; 60_000], &rights, true)).await.is_err());
        assert_eq!((is_settled(&tcp).await, is_settled(&volume).await), (2, 3));
        while first.receive(two, 60_000, false).await.is_ok() {}
        // Sent, received and claimed; a claim that nobody made is none.
        assert_eq!(first.send(one, b"x", &[right(Origin::Files, 4), right(Origin::Files, 5)], true).await, Ok(1));
        assert_eq!(fs.unsettled(vec![3, 4, 5]).await, Ok(vec![4, 5]));
        first.process.claimed(vec![4]).unwrap();
        runtime::take_in_all().await;
        assert_eq!(first.receive(two, 9, true).await.unwrap().0.rights.len(), 2);
        assert_eq!(fs.unsettled(vec![4, 5]).await, Ok(vec![4, 5]), "with its receiver");
        first.process.claimed(vec![5]).unwrap();
        assert_eq!((is_settled(&fs).await, fs.unsettled(vec![4, 5]).await), (5, Ok(vec![4])));
        // Ended.
        first.dies(&server, DeathCause::Killed, 0);
        assert_eq!(is_settled(&fs).await, 4);
        for exporter in [&fs, &tcp, &volume] {
            assert!(runtime::timeout(SOON_NS, exporter.next_event()).await.is_err());
        }
    });
}

#[test]
fn what_programs_say_is_on_the_machines_log_by_their_names() {
    let ((), lines) = runtime::testing::logged(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let first = Program::first(&server).await;
        first.process.describe("serverd".into(), "serverd".into()).unwrap();
        let log = Address::Local(LocalAddress { file: Some(7), name: b"/dev/log".to_vec() });
        let id = first.socket(SocketKind::Datagram).await;
        // The file server alone says where the log is.
        component(&server, "other").log_at(7).unwrap();
        runtime::take_in_all().await;
        let outcome = first.sockets.connect(id, log.clone(), true).await;
        assert_eq!(outcome, denied(DescriptionError::ConnectionRefused));
        component(&server, "fs").log_at(7).unwrap();
        runtime::take_in_all().await;
        first.sockets.connect(id, log.clone(), true).await.unwrap();
        assert_eq!(first.send(id, b"<13>ready", &[], true).await, Ok(9));
    });
    assert_eq!(lines, ["log of serverd: ready"]);
}

/// A program's sockets go with it, whichever channel tells its end first.
#[test]
fn a_connection_ends_with_its_program() {
    for is_replaced in [false, true] {
        runtime::testing::run(async {
            let (server, _spawn) = begin(&Rc::new(Fake::default()));
            let first = Program::first(&server).await;
            let listener = first.listening("x").await;
            let child = first.child(&server, 20).await;
            let one = child.socket(SocketKind::Stream).await;
            child.sockets.connect(one, named("x"), true).await.unwrap();
            let accepted = first.sockets.accept(listener, true).await.unwrap().id;
            let mut receiving = pin!(first.receive(accepted, 9, true));
            is_sent(receiving.as_mut()).await;
            runtime::take_in_all().await;
            if is_replaced {
                child.memory[2].raise_generation();
            } else {
                let Program { sockets, .. } = child;
                drop(sockets);
            }
            runtime::take_in_all().await;
            assert_eq!(receiving.await.unwrap().1, b"");
        });
    }
}
