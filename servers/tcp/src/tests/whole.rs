//! The server whole, in a machine that talks to itself: clients over channels, an IP that is not
//! there, and a process server that is played.

use contracts::BulkSpan;
use contracts::descriptions::{Control, ControlReply, DescriptionsEvent, Origin, Right, WatchFor, ready};
use contracts::in_flight::Exporter;
use contracts::packets::PacketsClient;
use contracts::process::{ProcessClient, serve_process};
use contracts::sockets::{
    LocalAddress, Received, SendOptions, Shutdown, SocketOption, SocketOptionName, SocketsClient, serve_sockets,
};

use super::*;
use contracts::testing::process::Played;

const BULK: Layout = Layout { ring_slots: 64, bulk_bytes: 320 << 10 };
/// Where in its bulk a client has bytes.
const SPAN_AT: u32 = 4096;

fn at(port: u16) -> SocketAddress {
    SocketAddress { address: [127, 0, 0, 1], port }
}

/// Its turns follow what is asked of it.
fn turning() -> Rc<Service> {
    let service = Rc::new(service());
    service.sockets.borrow_mut().tcp.set_host(None);
    let ip = PacketsClient::new(loopback(Layout::default()).0);
    runtime::spawn(crate::turns(service.clone(), ip));
    service
}

fn denied<T>(error: DescriptionError) -> Result<T, CallError<DescriptionError>> {
    Err(CallError::Server(error))
}

struct Client {
    sockets: SocketsClient,
    descriptions: DescriptionsClient,
}

impl Client {
    /// `number` tells programs apart.
    fn of(service: &Rc<Service>, number: u32) -> Client {
        let ends = || {
            let [client, served] = loopback_memory(BULK);
            let served = ServerChannel::new(Wiring { peer_set: number, ..loopback_wiring(served, false) });
            (ClientChannel::new(loopback_wiring(client, true)), served)
        };
        let ((sockets, served_sockets), (descriptions, served)) = (ends(), ends());
        runtime::spawn(serve_sockets(service.clone(), served_sockets));
        service.clients.add(&served);
        runtime::spawn(serve_descriptions(service.clone(), served));
        Client { sockets: SocketsClient::new(sockets), descriptions: DescriptionsClient::new(descriptions) }
    }

    async fn bound(&self, kind: SocketKind, port: u16) -> DescriptionId {
        let id = self.sockets.socket(Family::Internet, kind).await.unwrap();
        self.sockets.bind(id, Address::Internet(at(port))).await.unwrap();
        id
    }

    async fn listening(&self, port: u16) -> DescriptionId {
        let id = self.bound(SocketKind::Stream, port).await;
        self.sockets.listen(id, 9).await.unwrap();
        id
    }

    /// What connected to its own listener: the ends of who connected, and of who accepted.
    async fn connection(&self, listener: DescriptionId, port: u16) -> [DescriptionId; 2] {
        let id = self.sockets.socket(Family::Internet, SocketKind::Stream).await.unwrap();
        self.sockets.connect(id, Address::Internet(at(port)), true).await.unwrap();
        [id, self.sockets.accept(listener, true).await.unwrap().id]
    }

    fn put(&self, bytes: &[u8]) -> BulkSpan {
        self.descriptions.bulk().write(SPAN_AT as usize, bytes).unwrap();
        self.sockets.bulk().write(SPAN_AT as usize, bytes).unwrap();
        BulkSpan { offset: SPAN_AT, length: bytes.len() as u32 }
    }

    async fn write(&self, id: DescriptionId, bytes: &[u8], wait: bool) -> Result<u32, CallError<DescriptionError>> {
        self.descriptions.write(id, self.put(bytes), None, wait).await
    }

    async fn send(&self, id: DescriptionId, bytes: &[u8], to: Option<u16>) -> Result<u32, CallError<DescriptionError>> {
        let to = to.map(|port| Address::Internet(at(port)));
        self.sockets.send(id, self.put(bytes), to, Vec::new(), SendOptions { wait: true, more: false }).await
    }

    async fn read(&self, id: DescriptionId, length: u32, wait: bool) -> Result<Vec<u8>, CallError<DescriptionError>> {
        let count = self.descriptions.read(id, BulkSpan { offset: SPAN_AT, length }, None, wait).await?;
        let mut bytes = vec![0; count as usize];
        self.descriptions.bulk().read(SPAN_AT as usize, &mut bytes).unwrap();
        Ok(bytes)
    }

    async fn receive(
        &self,
        id: DescriptionId,
        length: u32,
        peek: bool,
    ) -> Result<(Received, Vec<u8>), CallError<DescriptionError>> {
        let got = self.sockets.receive(id, BulkSpan { offset: SPAN_AT, length }, peek, 0, true).await?;
        let mut bytes = vec![0; got.bytes as usize];
        self.sockets.bulk().read(SPAN_AT as usize, &mut bytes).unwrap();
        Ok((got, bytes))
    }
}

#[test]
fn who_waits_gets_what_comes_and_who_does_not_is_told_that_nothing_did() {
    runtime::testing::run(async {
        let client = Client::of(&turning(), 1);
        let listener = client.listening(80).await;
        assert_eq!(client.sockets.accept(listener, false).await, denied(DescriptionError::WouldBlock));
        let [one, other] = client.connection(listener, 80).await;
        assert_eq!(client.read(other, 9, false).await, denied(DescriptionError::WouldBlock));
        let mut reading = pin!(client.read(other, 9, true));
        is_sent(reading.as_mut()).await;
        assert_eq!(client.send(one, b"question", None).await, Ok(8));
        assert_eq!(reading.await, Ok(b"question".into()));
        // An address does not matter to what is connected.
        assert_eq!(client.send(one, b"more", Some(9)).await, Ok(4));
        assert_eq!(client.receive(other, 2, true).await.unwrap().1, b"mo");
        let (got, bytes) = client.receive(other, 9, false).await.unwrap();
        assert_eq!((got, &bytes[..]), (Received { bytes: 4, whole: 4, ..Received::default() }, &b"more"[..]));
        let available = client.descriptions.control(other, Control::Available).await;
        assert_eq!(available, Ok(ControlReply::Number(0)));
        client.write(one, b"12345", true).await.unwrap();
        client.receive(other, 9, true).await.unwrap();
        let available = client.descriptions.control(other, Control::Available).await;
        assert_eq!(available, Ok(ControlReply::Number(5)));
        let refused = client.sockets.socket(Family::Internet, SocketKind::Stream).await.unwrap();
        let outcome = client.sockets.connect(refused, Address::Internet(at(81)), true).await;
        assert_eq!(outcome, denied(DescriptionError::ConnectionRefused));
        let later = client.sockets.socket(Family::Internet, SocketKind::Stream).await.unwrap();
        let outcome = client.sockets.connect(later, Address::Internet(at(80)), false).await;
        assert_eq!(outcome, denied(DescriptionError::InProgress));
    });
}

#[test]
fn datagrams_carry_their_senders_to_who_receives_or_reads() {
    runtime::testing::run(async {
        let client = Client::of(&turning(), 1);
        let listener = client.bound(SocketKind::Datagram, 53).await;
        let speaker = client.bound(SocketKind::Datagram, 4000).await;
        assert_eq!(client.send(speaker, b"x", None).await, denied(DescriptionError::DestinationRequired));
        let mut receiving = pin!(client.receive(listener, 4, false));
        is_sent(receiving.as_mut()).await;
        assert_eq!(client.send(speaker, b"question", Some(53)).await, Ok(8));
        let source = Some(Address::Internet(at(4000)));
        let cut = Received { bytes: 4, whole: 8, source, ..Received::default() };
        assert_eq!(receiving.await, Ok((cut, b"ques".into())));
        client.sockets.connect(speaker, Address::Internet(at(53)), true).await.unwrap();
        assert_eq!(client.write(speaker, b"once", true).await, Ok(4));
        assert_eq!(client.send(speaker, b"again", None).await, Ok(5));
        assert_eq!(client.read(listener, 9, true).await, Ok(b"once".into()));
        assert_eq!(client.read(listener, 9, true).await, Ok(b"again".into()));
        // An address of nobody ends that.
        client.sockets.connect(speaker, Address::Local(LocalAddress::default()), true).await.unwrap();
        assert_eq!(client.write(speaker, b"x", true).await, denied(DescriptionError::DestinationRequired));
        let none = client.sockets.names(speaker).await;
        assert_eq!(none, Ok((Address::Internet(at(4000)), None)));
    });
}

#[test]
fn a_watcher_is_told_by_an_event() {
    runtime::testing::run(async {
        let service = turning();
        let client = Client::of(&service, 1);
        let listener = client.listening(80).await;
        let [one, other] = client.connection(listener, 80).await;
        assert_eq!(client.descriptions.poll(other, ready::READ, WatchFor::Level).await, Ok(0));
        // Another client's end is none of its own.
        Client::of(&service, 5).listening(81).await;
        runtime::take_in_all().await;
        client.write(one, b"question", true).await.unwrap();
        let event = client.descriptions.next_event().await;
        let DescriptionsEvent::Ready { id, mask } = event else { panic!("{event:?}") };
        assert_eq!((id, mask), (other, ready::READ));
    });
}

#[test]
fn what_a_client_held_goes_with_it_whichever_channel_tells_its_end() {
    for is_sockets in [true, false] {
        runtime::testing::run(async {
            let service = turning();
            let other = Client::of(&service, 5);
            let client = Client::of(&service, 1);
            client.listening(80).await;
            let kept = other.listening(81).await;
            let Client { sockets, descriptions } = client;
            if is_sockets {
                drop(sockets)
            } else {
                drop(descriptions)
            }
            runtime::take_in_all().await;
            let id = other.sockets.socket(Family::Internet, SocketKind::Stream).await.unwrap();
            let outcome = other.sockets.connect(id, Address::Internet(at(80)), true).await;
            assert_eq!(outcome, denied(DescriptionError::ConnectionRefused));
            other.connection(kept, 81).await;
        });
    }
}

#[test]
fn rights_and_places_are_refused_and_a_socket_is_a_socket() {
    runtime::testing::run(async {
        let client = Client::of(&turning(), 1);
        let listener = client.listening(80).await;
        let [one, _other] = client.connection(listener, 80).await;
        let span = client.put(b"x");
        let right = Right { origin: Origin::Process, token: 1, note: 0 };
        let sent = client.sockets.send(one, span, None, vec![right], SendOptions { wait: true, more: false }).await;
        assert_eq!(sent, denied(DescriptionError::NotSupported));
        assert_eq!(client.descriptions.read(one, span, Some(0), true).await, denied(DescriptionError::NotSeekable));
        assert_eq!(client.descriptions.write(one, span, Some(0), true).await, denied(DescriptionError::NotSeekable));
        let far = BulkSpan { offset: 0, length: u32::MAX };
        assert_eq!(client.descriptions.write(one, far, None, true).await, denied(DescriptionError::Invalid));
        let window = client.descriptions.control(one, Control::GetWindow).await;
        assert_eq!(window, denied(DescriptionError::NotTerminal));
        assert!(client.descriptions.status(one).await.is_ok());
        assert_eq!(client.sockets.shutdown(one, Shutdown::Both).await, Ok(()));
        assert_eq!(client.write(one, b"x", true).await, denied(DescriptionError::BrokenPipe));
        let error = client.sockets.option(one, SocketOptionName::Error).await;
        assert_eq!(error, Ok(SocketOption::Error(None)));
    });
}

#[test]
fn what_was_exported_is_there_until_it_is_settled() {
    runtime::testing::run(async {
        let service = turning();
        let [client, other] = [1, 5].map(|number| Client::of(&service, number));
        let one = client.listening(80).await;
        assert_eq!(service.tickets_held(), []);
        let ticket = client.descriptions.export(one).await.unwrap();
        assert_eq!(service.tickets_held(), [ticket]);
        assert_eq!(other.descriptions.claim(ticket).await, Ok(one));
        Exporter::settle(&*service, ticket);
        assert_eq!(service.tickets_held(), []);
        assert_eq!(other.descriptions.claim(ticket).await, denied(DescriptionError::BadId));
        client.descriptions.close(one).await.unwrap();
        other.connection(one, 80).await;
    });
}

/// The end of a program that exported and did not send is found; what it sent is in its message.
#[test]
fn what_was_exported_and_not_sent_goes_with_its_exporter() {
    for is_sent in [true, false] {
        runtime::testing::run(async {
            let service = turning();
            let played = Rc::new(Played::default());
            let (processes, served) = loopback(Layout::default());
            runtime::spawn(serve_process(played.clone(), served));
            let (asked, processes) = (service.clone(), ProcessClient::new(processes));
            runtime::spawn(async move { asked.settle_unsent(&processes).await });
            let [client, other] = [1, 5].map(|number| Client::of(&service, number));
            let listener = client.listening(80).await;
            let ticket = client.descriptions.export(listener).await.unwrap();
            if is_sent {
                played.in_flight.borrow_mut().push(ticket);
            }
            drop(client);
            for _ in 0..9 {
                runtime::take_in_all().await;
            }
            if is_sent {
                assert_eq!(service.tickets_held(), [ticket]);
                assert_eq!(other.descriptions.claim(ticket).await, Ok(listener));
                other.connection(listener, 80).await;
            } else {
                assert_eq!(service.tickets_held(), []);
                assert_eq!(other.descriptions.claim(ticket).await, denied(DescriptionError::BadId));
                other.listening(80).await;
            }
        });
    }
}

impl Service {
    fn tickets_held(&self) -> Vec<u64> {
        Exporter::tickets(self)
    }
}
