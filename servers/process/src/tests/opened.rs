//! The contract `descriptions` over channels: waiting, watching, and what goes with a program.

use super::*;
use channel::BulkSpan;
use contracts::descriptions::{Control, ControlReply, DescriptionId, DescriptionsEvent, Kind, WatchFor, Whence, ready};
use contracts::process::{TimerStart, TimerState};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

const MS: u64 = 1_000_000;
/// Where in its bulk a client has bytes.
const SPAN_AT: u32 = 4096;

type Answer<T> = Result<T, CallError<DescriptionError>>;

impl Program {
    async fn read_at(&self, id: DescriptionId, length: u32, at: Option<u64>, wait: bool) -> Answer<Vec<u8>> {
        let count = self.descriptions.read(id, BulkSpan { offset: SPAN_AT, length }, at, wait).await?;
        let mut bytes = vec![0; count as usize];
        self.descriptions.bulk().read(SPAN_AT as usize, &mut bytes).unwrap();
        Ok(bytes)
    }

    async fn read(&self, id: DescriptionId, length: u32, wait: bool) -> Answer<Vec<u8>> {
        self.read_at(id, length, None, wait).await
    }

    async fn write(&self, id: DescriptionId, bytes: &[u8], wait: bool) -> Answer<u32> {
        self.descriptions.bulk().write(SPAN_AT as usize, bytes).unwrap();
        let span = BulkSpan { offset: SPAN_AT, length: bytes.len() as u32 };
        self.descriptions.write(id, span, None, wait).await
    }

    /// Watches for that, which does not hold yet.
    async fn watch(&self, id: DescriptionId, mask: u32) {
        assert_eq!(self.descriptions.poll(id, mask, WatchFor::Level).await, Ok(0));
    }

    async fn is_told_ready(&self) -> (DescriptionId, u32) {
        let event = self.descriptions.next_event().await;
        let DescriptionsEvent::Ready { id, mask } = event else { panic!("{event:?}") };
        (id, mask)
    }

    async fn is_told_nothing(&self) {
        assert!(runtime::timeout(SOON_NS, self.descriptions.next_event()).await.is_err());
    }
}

/// A server with the first program.
async fn one() -> (Rc<Server>, Program, SpawnClient) {
    let (server, spawn) = begin(&Rc::new(Fake::default()));
    let first = Program::first(&server).await;
    (server, first, spawn)
}

#[test]
fn who_waits_reads_what_is_written_later_and_who_does_not_is_told_that_nothing_is_there() {
    runtime::testing::run(async {
        let (_server, first, _spawn) = one().await;
        let (reads, writes) = first.process.pipe().await.unwrap();
        assert_eq!(first.read(reads, 9, false).await, denied(DescriptionError::WouldBlock));
        let mut reading = pin!(first.read(reads, 9, true));
        is_sent(reading.as_mut()).await;
        runtime::take_in_all().await;
        assert_eq!(first.write(writes, b"hello", true).await, Ok(5));
        assert_eq!(reading.await, Ok(b"hello".into()));
        assert_eq!(first.write(writes, b"more", false).await, Ok(4));
        assert_eq!(first.read_at(reads, 9, Some(1), false).await, Ok(b"ore".into()), "a look");
        assert_eq!(first.read(reads, 9, false).await, Ok(b"more".into()));
        let placed = first.descriptions.write(writes, BulkSpan { offset: SPAN_AT, length: 1 }, Some(0), true).await;
        assert_eq!(placed, denied(DescriptionError::NotSeekable));
        let far = BulkSpan { offset: u32::MAX - 8, length: 4 };
        assert_eq!(first.descriptions.write(writes, far, None, true).await, denied(DescriptionError::Invalid));
    });
}

#[test]
fn bytes_in_two_pieces_are_put_one_behind_the_other() {
    runtime::testing::run(async {
        let (_server, first, _spawn) = one().await;
        let (reads, writes) = first.process.pipe().await.unwrap();
        let smaller = first.descriptions.control(writes, Control::SetCapacity { bytes: 4096 }).await;
        assert_eq!(smaller, Ok(ControlReply::Number(4096)));
        let bytes: Vec<u8> = (0..6000).map(|number: u32| (number % 251) as u8).collect();
        first.write(writes, &bytes[..3000], false).await.unwrap();
        assert_eq!(first.read(reads, 2000, false).await.unwrap(), bytes[..2000]);
        first.write(writes, &bytes[3000..], false).await.unwrap();
        assert_eq!(first.read(reads, 6000, false).await.unwrap(), bytes[2000..]);
        // A read is of so many bytes, whatever the bulk holds.
        let all = first.descriptions.control(writes, Control::SetCapacity { bytes: 64 << 10 }).await;
        assert_eq!(all, Ok(ControlReply::Number(64 << 10)));
        assert_eq!(first.write(writes, &vec![1; 100 << 10], false).await, Ok(64 << 10));
        assert_eq!(first.read(reads, 100 << 10, false).await.map(|bytes| bytes.len()), Ok(64 << 10));
    });
}

#[test]
fn each_kind_says_what_it_is() {
    runtime::testing::run(async {
        let (server, first, _spawn) = one().await;
        let (reads, writes) = first.process.pipe().await.unwrap();
        let named = first.process.open_pipe(77, true, true, false).await.unwrap();
        let event = first.process.event(3, false).await.unwrap();
        first.write(writes, b"12345", false).await.unwrap();
        let control = |id, request| first.descriptions.control(id, request);
        assert_eq!(control(reads, Control::Available).await, Ok(ControlReply::Number(5)));
        assert_eq!(control(reads, Control::GetCapacity).await, Ok(ControlReply::Number(64 << 10)));
        assert_eq!(control(event, Control::Available).await, denied(DescriptionError::NotTerminal));
        assert_eq!(control(reads, Control::GetWindow).await, denied(DescriptionError::NotTerminal));
        assert_eq!(control(999, Control::GetWindow).await, denied(DescriptionError::BadId));
        assert_eq!(first.descriptions.seek(event, 7, Whence::Start).await, Ok(0));
        assert_eq!(first.descriptions.seek(reads, 7, Whence::Start).await, denied(DescriptionError::NotSeekable));
        let status = async |id| {
            let status = first.descriptions.status(id).await.unwrap();
            (status.kind, status.inode)
        };
        assert_eq!([status(reads).await, status(named).await], [(Kind::Pipe, reads), (Kind::Pipe, 77)]);
        assert_eq!(status(event).await, (Kind::Anonymous, event));
        assert_eq!(first.descriptions.resize(reads, 1).await, denied(DescriptionError::Invalid));
        assert_eq!(first.descriptions.entries(reads, 0).await, denied(DescriptionError::NotDirectory));
        assert_eq!(first.descriptions.export(reads).await, denied(DescriptionError::NotSupported));
        assert_eq!(first.descriptions.claim(1).await, denied(DescriptionError::NotSupported));
        let child = first.child(&server, 20).await;
        assert_eq!(child.read(event, 8, false).await, denied(DescriptionError::BadId));
        assert_eq!(first.read(event, 8, false).await, Ok(3u64.to_ne_bytes().into()));
    });
}

#[test]
fn a_named_pipe_waits_for_its_other_side_and_who_gives_up_has_opened_nothing() {
    runtime::testing::run(async {
        let (server, first, _spawn) = one().await;
        let child = first.child(&server, 20).await;
        assert_eq!(first.process.open_pipe(5, false, true, false).await, denied(ProcessError::NotFound));
        assert_eq!(first.process.open_pipe(5, false, false, false).await, denied(ProcessError::Invalid));
        assert!(runtime::timeout(MS, first.process.open_pipe(5, true, false, true)).await.is_err());
        runtime::take_in_all().await;
        let alone = child.process.open_pipe(5, false, true, false).await;
        assert_eq!(alone, denied(ProcessError::NotFound), "nobody reads");
        let mut opening = pin!(first.process.open_pipe(5, true, false, true));
        is_sent(opening.as_mut()).await;
        let writes = child.process.open_pipe(5, false, true, true).await.unwrap();
        let reads = opening.await.unwrap();
        assert_eq!(child.write(writes, b"x", false).await, Ok(1));
        assert_eq!(first.read(reads, 9, true).await, Ok(b"x".into()));
        // As many as there may be.
        let mut opened = 0;
        let refused = loop {
            match first.process.open_pipe(100 + opened, true, false, false).await {
                Ok(_) => opened += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((refused, opened > 100), (CallError::Server(ProcessError::TooMany), true));
        assert_eq!(first.process.pipe().await, denied(ProcessError::TooMany));
    });
}

#[test]
fn a_watcher_is_told_once_of_what_it_watches() {
    runtime::testing::run(async {
        let (server, first, _spawn) = one().await;
        let (reads, writes) = first.process.pipe().await.unwrap();
        assert_eq!(first.descriptions.poll(writes, ready::WRITE, WatchFor::Level).await, Ok(ready::WRITE));
        first.watch(reads, ready::READ).await;
        let child = first.child(&server, 20).await;
        // A change by which it does not come to hold.
        first.watch(writes, ready::READ).await;
        first.write(writes, b"x", false).await.unwrap();
        assert_eq!(first.is_told_ready().await, (reads, ready::READ));
        first.write(writes, b"x", false).await.unwrap();
        first.is_told_nothing().await;
        assert_eq!(child.descriptions.poll(reads, ready::READ, WatchFor::Level).await, denied(DescriptionError::BadId));
        first.read(reads, 9, false).await.unwrap();
        // Who closes it watches no more.
        first.watch(reads, ready::READ).await;
        let held = inherits(&server, &first, &child, reads);
        first.descriptions.close(reads).await.unwrap();
        first.write(writes, b"x", false).await.unwrap();
        first.is_told_nothing().await;
        assert_eq!(child.read(held, 9, false).await, Ok(b"x".into()));
    });
}

/// The child has all that its parent has.
fn inherits(server: &Rc<Server>, parent: &Program, child: &Program, id: DescriptionId) -> DescriptionId {
    server.opened.act(|table| table.inherit(parent.client(), child.client()));
    id
}

/// What a program held goes with it, and so do its watches; those of others stay.
#[test]
fn a_program_that_ended_watches_nothing_and_holds_nothing() {
    enum How {
        Died,
        Left,
        Replaced,
    }
    for how in [How::Died, How::Left, How::Replaced] {
        runtime::testing::run(async {
            let (server, first, _spawn) = one().await;
            let (reads, writes) = first.process.pipe().await.unwrap();
            let child = first.child(&server, 20).await;
            inherits(&server, &first, &child, reads);
            first.descriptions.close(writes).await.unwrap();
            first.watch(reads, ready::READ).await;
            child.watch(reads, ready::READ).await;
            match how {
                How::Died => {
                    child.dies(&server, DeathCause::Killed, 0);
                    child.is_told_nothing().await;
                }
                How::Left => {
                    let Program { descriptions, .. } = child;
                    drop(descriptions);
                }
                How::Replaced => {
                    child.memory[1].raise_generation();
                }
            }
            runtime::take_in_all().await;
            assert_eq!(first.is_told_ready().await, (reads, ready::HANGUP), "nobody writes any more");
            assert_eq!(first.read(reads, 9, true).await, Ok(vec![]));
        });
    }
}

#[test]
fn a_timer_is_read_as_often_as_it_expired() {
    runtime::testing::run(async {
        let (server, first, _spawn) = one().await;
        runtime::spawn(server.clone().keep_time());
        runtime::sleep(SOON_NS).await;
        let (timer, of_day) = (first.process.timer(false).await.unwrap(), first.process.timer(true).await.unwrap());
        let set = |id, start, interval_ns| first.process.set_timer(id, start, interval_ns);
        assert_eq!(set(timer, TimerStart::In(50 * MS), 10 * MS).await, Ok(TimerState::default()));
        let state = first.process.timer_state(timer).await.unwrap();
        assert_eq!((state.left_ns.div_ceil(MS), state.interval_ns), (50, 10 * MS));
        assert_eq!(first.read(timer, 8, false).await, denied(DescriptionError::WouldBlock));
        assert_eq!(first.read(timer, 8, true).await, Ok(1u64.to_ne_bytes().into()));
        runtime::sleep(35 * MS).await;
        assert_eq!(first.read(timer, 8, true).await, Ok(3u64.to_ne_bytes().into()));
        let state = set(timer, TimerStart::Never, 0).await.unwrap();
        assert!((1..=10 * MS).contains(&state.left_ns));
        // On the host, 1970 is when the machine began.
        let soon_ns = runtime::realtime_ns() + 70 * MS;
        first.watch(of_day, ready::READ).await;
        set(of_day, TimerStart::At(soon_ns), 0).await.unwrap();
        assert_eq!(first.process.timer_state(of_day).await.unwrap().left_ns.div_ceil(MS), 70);
        assert_eq!(first.is_told_ready().await, (of_day, ready::READ));
        assert!(runtime::realtime_ns() >= soon_ns);
        let (reads, _) = first.process.pipe().await.unwrap();
        assert_eq!(set(reads, TimerStart::Never, 0).await, denied(ProcessError::Invalid));
        assert_eq!(set(999, TimerStart::Never, 0).await, denied(ProcessError::NotFound));
        assert_eq!(first.process.timer_state(reads).await, denied(ProcessError::Invalid));
    });
}

#[test]
fn a_handle_is_ready_when_its_process_has_ended() {
    runtime::testing::run(async {
        let (server, first, _spawn) = one().await;
        let child = first.child(&server, 20).await;
        let handle = first.process.handle(child.id).await.unwrap();
        first.watch(handle, ready::READ).await;
        child.dies(&server, DeathCause::Killed, 0);
        assert_eq!(first.is_told_ready().await, (handle, ready::READ));
        let late = first.process.handle(child.id).await.unwrap();
        assert_eq!(first.descriptions.poll(late, ready::READ, WatchFor::Level).await, Ok(ready::READ));
    });
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_request_that_was_given_up_waits_no_more() {
    runtime::testing::run(async {
        let (server, first, _spawn) = one().await;
        let (reads, _writes) = first.process.pipe().await.unwrap();
        let waiter = Arc::new(Nobody);
        let waker = Waker::from(waiter.clone());
        let alone = Arc::strong_count(&waiter);
        {
            let opened = server.opened.clone();
            let client = first.client();
            let read = |table: &mut process_core::open::Descriptions| table.read(client, reads, 9, 0, |_, _| true);
            let mut reading = pin!(opened.repeat(reads, true, read));
            assert!(reading.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(Arc::strong_count(&waiter), alone + 1);
        }
        assert_eq!(Arc::strong_count(&waiter), alone);
    });
}
