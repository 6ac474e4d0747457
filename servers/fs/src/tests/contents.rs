//! What descriptions read, write and tell.

use contracts::descriptions::{AttributeRequest, Control, ControlReply, Copied, WatchFor, Whence, copy_words, ready};

use super::*;

const PAGE: u64 = 4096;
/// Most bytes that one request moves.
const MOVE_BYTES_MAX: usize = 256 << 10;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 4096 + at % 251) as u8).collect()
}

#[test]
fn reads_and_writes_go_on_where_the_last_one_ended_unless_they_name_a_place() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        assert_eq!(client.write(id, None, b"hello ").await, Ok(6));
        assert_eq!(client.write(id, None, b"world").await, Ok(5));
        assert_eq!(client.write(id, Some(0), b"H").await, Ok(1));
        assert_eq!(client.read(id, None, 9).await, Ok(b"".into()), "it ends there");
        assert_eq!(client.descriptions.seek(id, 0, Whence::Start).await, Ok(0));
        assert_eq!(client.read(id, None, 5).await, Ok(b"Hello".into()));
        assert_eq!(client.read(id, Some(6), 5).await, Ok(b"world".into()));
        assert_eq!(client.read(id, None, 4).await, Ok(b" wor".into()));
        assert_eq!(client.write(id, None, b"LDS").await, Ok(3));
        assert_eq!(client.read(id, Some(0), 99).await, Ok(b"Hello worLDS".into()));
        let large = pattern(3 * PAGE as usize);
        assert_eq!(client.write(id, Some(5), &large).await, Ok(3 * PAGE as u32));
        assert_eq!(client.read(id, Some(5), 3 * PAGE as u32).await, Ok(large), "in pieces");
    });
}

#[test]
fn who_did_not_open_it_for_that_neither_reads_nor_writes() {
    runtime::testing::run(async {
        let service = server();
        let [client, other] = [1, 5].map(|number| Client::of(&service, number));
        let both = client.opened("/file").await;
        client.write(both, None, b"bytes").await.unwrap();
        let reader = client.opened_to_read("/file").await;
        let writer = client.open("/file", open::WRITE).await.unwrap().id;
        let bad = DescriptionError::BadId;
        assert_eq!(
            (client.read(writer, None, 9).await, client.write(reader, None, b"x").await),
            (denied(bad), denied(bad))
        );
        assert_eq!(client.descriptions.resize(reader, 0).await, denied(DescriptionError::Invalid));
        assert_eq!(
            (other.read(both, None, 9).await, other.descriptions.status(both).await),
            (denied(bad), denied(bad))
        );
        assert_eq!(other.descriptions.close(both).await, denied(bad));
        let directory = client.opened_to_read("/dev").await;
        assert_eq!(client.read(directory, None, 9).await, denied(DescriptionError::IsDirectory));
        let listing = client.opened_to_read("/proc").await;
        assert_eq!(client.read(listing, None, 9).await, denied(DescriptionError::IsDirectory));
        assert_eq!(client.read(reader, None, 9).await, Ok(b"bytes".into()));
        assert_eq!(client.descriptions.close(both).await, Ok(()));
        assert_eq!(client.read(both, None, 9).await, denied(bad));
    });
}

#[test]
fn a_request_moves_256_kib_at_most() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        let bytes = pattern(MOVE_BYTES_MAX + 9);
        assert_eq!(client.write(id, None, &bytes).await, Ok(MOVE_BYTES_MAX as u32));
        assert_eq!(client.write(id, None, &bytes[MOVE_BYTES_MAX..]).await, Ok(9));
        assert!(client.read(id, Some(0), bytes.len() as u32).await.unwrap() == bytes[..MOVE_BYTES_MAX]);
    });
}

#[test]
fn a_span_outside_the_bulk_is_refused_before_anything_is_done() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        let length = client.descriptions.bulk().len() as u32;
        for (offset, length, is_inside) in
            [(0, length, true), (SPAN_AT, length - SPAN_AT, true), (SPAN_AT, length, false), (length + 1, 0, false)]
        {
            let span = BulkSpan { offset, length };
            let expected = |count| if is_inside { Ok(count) } else { denied(DescriptionError::Invalid) };
            // Nothing would be read.
            assert_eq!(client.descriptions.read(id, span, Some(1 << 30), true).await, expected(0), "{span:?}");
            let kept = client.descriptions.read_and_keep(id, span, Some(1 << 30), 0).await;
            assert_eq!(kept.map(|kept| kept.count), expected(0), "{span:?}");
            let written = client.descriptions.write(id, span, Some(0), true).await;
            assert_eq!(written, expected(length.min(MOVE_BYTES_MAX as u32)), "{span:?}");
        }
    });
}

#[test]
fn devices_of_memory_give_and_take_what_they_are_for() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        for (device, given, taken) in [
            ("null", 0, Ok(4)),
            ("zero", 9, Ok(4)),
            ("full", 9, denied(DescriptionError::NoSpace)),
            ("random", 9, Ok(4)),
            ("urandom", 9, Ok(4)),
        ] {
            let id = client.open(&format!("/dev/{device}"), open::READ | open::WRITE).await.unwrap().id;
            assert_eq!(client.write(id, None, b"abcd").await, taken, "{device}");
            client.descriptions.bulk().write(SPAN_AT as usize, &[7; 9]).unwrap();
            let bytes = client.read(id, None, 9).await.unwrap();
            assert_eq!(bytes.len(), given, "{device}");
            assert!(bytes.iter().all(|byte| *byte != 7), "{device}");
            assert_eq!(client.descriptions.resize(id, 0).await, denied(DescriptionError::Invalid), "{device}");
            let kept = client.descriptions.read_and_keep(id, BulkSpan { offset: 8, length: 1 }, None, 0).await;
            assert_eq!(kept, denied(DescriptionError::NotSupported), "{device}");
        }
        let id = client.opened_to_read("/dev/null").await;
        assert_eq!(client.write(id, None, b"x").await, denied(DescriptionError::BadId));
    });
}

#[test]
fn who_appends_writes_at_the_end_whatever_the_offset() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        client.write(id, None, b"12345").await.unwrap();
        client.files.set_append(id, true).await.unwrap();
        client.write(id, Some(0), b"6").await.unwrap();
        client.descriptions.seek(id, 0, Whence::Start).await.unwrap();
        client.write(id, None, b"7").await.unwrap();
        assert_eq!(client.read(id, Some(0), 9).await, Ok(b"1234567".into()));
        assert_eq!(client.descriptions.seek(id, 0, Whence::Current).await, Ok(7));
        client.files.set_append(id, false).await.unwrap();
        client.write(id, Some(0), b"x").await.unwrap();
        assert_eq!(client.read(id, Some(0), 9).await, Ok(b"x234567".into()));
        let id = client.open("/file", open::WRITE | open::APPEND).await.unwrap().id;
        client.write(id, None, b"8").await.unwrap();
        assert_eq!(client.descriptions.status(id).await.unwrap().size, 8);
    });
}

#[test]
fn an_offset_is_moved_from_where_it_is_said_to_count() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        client.write(id, Some(5 * PAGE), b"data").await.unwrap();
        let seek = async |offset, whence| client.descriptions.seek(id, offset, whence).await;
        assert_eq!(seek(7, Whence::Start).await, Ok(7));
        assert_eq!(seek(-3, Whence::Current).await, Ok(4));
        assert_eq!(seek(-4, Whence::End).await, Ok(5 * PAGE));
        assert_eq!(client.read(id, None, 9).await, Ok(b"data".into()));
        assert_eq!(seek(-1, Whence::Start).await, denied(DescriptionError::Invalid));
        assert_eq!(seek(0, Whence::Current).await, Ok(5 * PAGE + 4), "it stays where it was");
        assert_eq!(seek(1, Whence::Data).await, Ok(5 * PAGE));
        assert_eq!(seek(0, Whence::Current).await, Ok(5 * PAGE));
        assert_eq!(seek(1, Whence::Hole).await, Ok(1));
        assert_eq!(seek(5 * PAGE as i64 + 1, Whence::Hole).await, Ok(5 * PAGE + 4));
        for (offset, whence) in [(5 * PAGE as i64 + 4, Whence::Data), (-1, Whence::Data), (-1, Whence::Hole)] {
            assert_eq!(seek(offset, whence).await, denied(DescriptionError::PastEnd), "{offset} {whence:?}");
        }
        let text = client.opened_to_read("/proc/version").await;
        let length = client.read(text, None, 100).await.unwrap().len() as u64;
        assert_eq!(client.descriptions.seek(text, -1, Whence::End).await, Ok(length - 1));
        assert_eq!(client.read(text, None, 9).await, Ok(b"\n".into()));
        assert_eq!((client.read(text, None, 9).await, client.read(text, Some(500), 9).await), (Ok(vec![]), Ok(vec![])));
        for path in ["/proc/version", "/dev/null"] {
            let id = client.opened_to_read(path).await;
            let place = client.descriptions.seek(id, 0, Whence::Data).await;
            assert_eq!(place, denied(DescriptionError::Invalid), "{path}");
        }
    });
}

#[test]
fn a_file_that_shrinks_gives_its_pages_back_and_one_that_grows_shows_zeros() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let before = client.files.space().await.unwrap();
        assert_eq!(before, (0, PAGES));
        let id = client.opened("/file").await;
        client.write(id, None, &pattern(3 * PAGE as usize)).await.unwrap();
        assert_eq!(client.files.space().await, Ok((3, PAGES - 3)));
        assert_eq!(client.descriptions.status(id).await.unwrap().sectors, 3 * 8);
        client.descriptions.resize(id, 2).await.unwrap();
        assert_eq!(client.files.space().await, Ok((1, PAGES - 1)));
        client.descriptions.resize(id, 4).await.unwrap();
        assert_eq!(client.read(id, Some(0), 9).await, Ok([&pattern(2)[..], &[0, 0]].concat()));
        client.files.remove(name("/file"), false).await.unwrap();
        assert_eq!(client.files.space().await, Ok((1, PAGES - 1)), "it is still open");
        client.descriptions.close(id).await.unwrap();
        assert_eq!(client.files.space().await, Ok(before));
    });
}

#[test]
fn a_directory_lists_what_is_in_it_and_a_file_lists_nothing() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        client.files.make_directory(name("/many"), 0o755).await.unwrap();
        for number in 0..50 {
            client.opened(&format!("/many/{number}")).await;
        }
        let id = client.opened_to_read("/many").await;
        let mut names: Vec<_> = client.listed(id).await.into_iter().map(|(name, ..)| name).collect();
        assert_eq!(client.descriptions.entries(id, 0).await.unwrap().0.len(), 32, "as many as one answer has");
        assert_eq!(names.drain(..2).collect::<Vec<_>>(), [".", ".."]);
        assert_eq!(names, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
        for path in ["/many/7", "/dev/null", "/proc/version"] {
            let id = client.opened_to_read(path).await;
            assert_eq!(client.descriptions.entries(id, 0).await, denied(DescriptionError::NotDirectory), "{path}");
        }
    });
}

#[test]
fn a_file_says_how_much_is_left_of_it_and_that_it_is_always_ready() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        client.write(id, None, b"12345").await.unwrap();
        client.descriptions.seek(id, 2, Whence::Start).await.unwrap();
        let control = async |request| client.descriptions.control(id, request).await;
        assert_eq!(control(Control::Available).await, Ok(ControlReply::Number(3)));
        client.descriptions.seek(id, 9, Whence::Start).await.unwrap();
        assert_eq!(control(Control::Available).await, Ok(ControlReply::Number(0)));
        let list = AttributeRequest::List { span: BulkSpan { offset: 0, length: 9 } };
        assert_eq!(control(Control::Attribute(list)).await, denied(DescriptionError::NotSupported));
        assert_eq!(control(Control::GetTerminal).await, denied(DescriptionError::NotTerminal));
        let (all, both) = (u32::MAX, ready::READ | ready::WRITE);
        for (mask, expected) in [(all, both), (ready::READ, ready::READ), (ready::WRITE, ready::WRITE), (all - both, 0)]
        {
            assert_eq!(client.descriptions.poll(id, mask, WatchFor::Nothing).await, Ok(expected));
        }
        let none = client.descriptions.poll(77, all, WatchFor::Nothing).await;
        assert_eq!(none, denied(DescriptionError::BadId));
    });
}

#[test]
fn what_a_client_keeps_of_a_file_is_over_when_the_file_is_changed() {
    runtime::testing::run(async {
        let service = server();
        let [client, other] = [1, 5].map(|number| Client::of(&service, number));
        let (id, others) = (client.opened("/file").await, other.opened("/file").await);
        client.write(id, Some(0), b"12345").await.unwrap();
        let is_over = || client.descriptions.bulk().load_u32(copy_words::OVER);
        let keep = async || {
            let span = BulkSpan { offset: SPAN_AT, length: 9 };
            let kept = client.descriptions.read_and_keep(id, span, Some(1), 0).await.unwrap();
            assert_eq!(is_over(), Ok(0));
            (kept, client.taken(kept.count))
        };
        assert_eq!(keep().await, (Copied { from: 1, count: 4 }, b"2345".into()));
        other.write(others, Some(1), b"x").await.unwrap();
        assert_eq!(is_over(), Ok(1));
        assert_eq!(keep().await, (Copied { from: 1, count: 4 }, b"x345".into()));
        other.descriptions.resize(others, 3).await.unwrap();
        assert_eq!(is_over(), Ok(1));
        assert_eq!(keep().await, (Copied { from: 1, count: 2 }, b"x3".into()));
        let text = client.opened_to_read("/proc/version").await;
        let kept = client.descriptions.read_and_keep(text, BulkSpan { offset: 8, length: 9 }, Some(0), 0).await;
        assert_eq!(kept, denied(DescriptionError::NotSupported));
    });
}

#[test]
fn what_lies_in_memory_is_kept_as_well_as_it_can_be() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = client.opened("/file").await;
        let bad = DescriptionError::BadId;
        assert_eq!(client.files.synchronize(id, true).await, Ok(()));
        assert_eq!(client.files.synchronize(77, true).await, denied(bad));
        assert_eq!(
            (client.files.synchronize_all(None).await, client.files.synchronize_all(Some(id)).await),
            (Ok(()), Ok(()))
        );
        assert_eq!(client.files.synchronize_all(Some(77)).await, denied(bad));
    });
}
