//! What is asked of open descriptions: offsets, rights, entries, locks.

use contracts::descriptions::{DescriptionsServer, Entry, WatchFor, ready};
use contracts::files::{FilesServer, Hold, Lock, LockKind};
use contracts::testing::gives_to_the_newborn_only;

use super::*;

const BOTH: u32 = open::READ | open::WRITE;

fn span(length: u32) -> BulkSpan {
    BulkSpan { offset: 0, length }
}

#[test]
fn reads_and_writes_move_the_offset_unless_they_name_a_place() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let descriptions = &fixture.descriptions;
        let id = fixture.open("/large", BOTH).await.unwrap().id;
        let offset = async || descriptions.seek(id, 0, Whence::Current).await.unwrap();
        for (at, moved_to) in [(None, 100), (None, 200), (Some(5), 200)] {
            assert_eq!(descriptions.read(id, span(100), at, true).await, Ok(100));
            assert_eq!(offset().await, moved_to);
        }
        for (at, moved_to) in [(None, 250), (Some(5), 250), (None, 300)] {
            assert_eq!(descriptions.write(id, span(50), at, true).await, Ok(50));
            assert_eq!(offset().await, moved_to);
        }
        assert_eq!(descriptions.control(id, Control::Available).await, Ok(ControlReply::Number(LARGE as u64 - 300)));
        assert_eq!(descriptions.seek(id, -10, Whence::End).await, Ok(LARGE as u64 - 10));
        assert_eq!(descriptions.read(id, span(100), None, true).await, Ok(10), "the file ends");
        // Who appends writes at the end, wherever it was.
        fixture.files.set_append(id, true).await.unwrap();
        assert_eq!(descriptions.seek(id, 7, Whence::Start).await, Ok(7));
        assert_eq!(descriptions.write(id, span(0), None, true).await, Ok(0));
        assert_eq!(offset().await, 7, "nothing was written");
        assert_eq!(descriptions.write(id, span(50), None, true).await, Ok(50));
        assert_eq!(offset().await, LARGE as u64 + 50);
        assert_eq!(descriptions.seek(id, -1, Whence::Start).await, refused(DescriptionError::Invalid));
    });
}

#[test]
fn a_description_is_used_for_what_it_was_opened_for() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let descriptions = &fixture.descriptions;
        let (read, write) = (
            fixture.open("/small", open::READ).await.unwrap().id,
            fixture.open("/small", open::WRITE).await.unwrap().id,
        );
        let (bad_id, invalid) = (DescriptionError::BadId, DescriptionError::Invalid);
        assert_eq!(descriptions.read(write, span(5), Some(0), true).await, refused(bad_id));
        assert_eq!(descriptions.write(read, span(5), Some(0), true).await, refused(bad_id));
        assert_eq!(descriptions.resize(read, 0).await, refused(invalid));
        let beyond = BulkSpan { offset: BULK.bulk_bytes - 1, length: 2 };
        assert_eq!(descriptions.read(read, beyond, Some(0), true).await, refused(invalid));
        assert_eq!(descriptions.write(write, beyond, Some(0), true).await, refused(invalid));
        assert_eq!(fixture.read(read, 0, 10).await, b"small");
        assert_eq!(descriptions.resize(write, 3).await, Ok(()));
        assert_eq!(fixture.read(read, 0, 10).await, b"sma");
    });
}

#[test]
fn a_file_is_always_ready_to_be_read_and_written() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let id = fixture.open("/small", BOTH).await.unwrap().id;
        let all = ready::READ | ready::WRITE;
        for (mask, found) in [(ready::READ, ready::READ), (ready::WRITE, ready::WRITE), (u32::MAX, all), (0, 0)] {
            assert_eq!(fixture.descriptions.poll(id, mask, WatchFor::Level).await, Ok(found));
        }
        assert!(fixture.descriptions.poll(id + 1, all, WatchFor::Level).await.is_err());
        let window = fixture.descriptions.control(id, Control::GetWindow).await;
        assert_eq!(window, refused(DescriptionError::NotTerminal));
    });
}

#[test]
fn a_client_gives_what_it_holds_to_the_newborn_only() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let server = fixture(image, 1000, false).server;
        let serve = |channel| {
            runtime::spawn(serve_descriptions(server.clone(), channel));
        };
        gives_to_the_newborn_only(|channel| server.open.clients.add(channel), serve).await;
    });
}

#[test]
fn who_claims_a_description_by_its_ticket_has_it_for_itself() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let (server, other) = (&*fixture.server, program(5));
        let id = fixture.open("/small", open::READ).await.unwrap().id;
        let status = async || DescriptionsServer::status(server, other.peer(), id).await;
        let claim = async |ticket| DescriptionsServer::claim(server, other.peer(), ticket).await;
        let ticket = fixture.descriptions.export(id).await.unwrap();
        assert!(claim(ticket ^ 1).await.is_err());
        assert_eq!(status().await, Err(DescriptionError::BadId));
        assert_eq!(claim(ticket).await, Ok(id));
        fixture.descriptions.close(id).await.unwrap();
        assert_eq!(status().await.map(|status| status.size), Ok(5), "it has one of its own");
    });
}

/// The entries of a folder, by answers.
async fn answers(fixture: &Fixture, path: &str) -> Vec<Vec<Entry>> {
    let id = fixture.open(path, open::READ | open::DIRECTORY).await.unwrap().id;
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let (entries, next) = fixture.descriptions.entries(id, from).await.unwrap();
        if entries.is_empty() {
            return all;
        }
        assert!(next > from);
        from = next;
        all.push(entries);
    }
}

#[test]
fn entries_are_told_in_as_many_answers_as_they_need() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        fixture.files.make_directory(name("/folder"), 0o755).await.unwrap();
        // Together with `.` and `..` the first three are 700 bytes.
        let mut names: Vec<String> = ["a", "b", "c"].map(|letter| letter.repeat(209)).into();
        // Bytes of no UTF-8, which take more room: an answer is for one of them alone.
        names.extend([0xff, 0xfe].map(|byte| system::file_name::to_text(&[byte; 230])));
        names.push("d".into());
        for last in &names {
            fixture.open(&format!("/folder/{last}"), open::WRITE | open::CREATE).await.unwrap();
        }
        let answers = answers(&fixture, "/folder").await;
        let told: Vec<&str> = answers.iter().flatten().map(|entry| &*entry.name).collect();
        let expected: Vec<&str> = [".", ".."].into_iter().chain(names.iter().map(|name| &**name)).collect();
        assert_eq!(told, expected, "each once, in order");
        assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [5, 1, 1, 1]);
        let small = answers[3][0].inode;
        assert_eq!(fixture.files.status(name("/folder/d"), true).await.unwrap().inode, small);
    });
}

#[test]
fn a_file_is_locked_for_all_who_have_it_open_and_no_other_is() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        let (server, other) = (&*fixture.server, program(5));
        let whole = Lock { kind: LockKind::Whole, hold: Some(Hold::Exclusive), from: 0, to: u64::MAX, process: 1 };
        let open = async |path| FilesServer::open(server, other.peer(), name(path), BOTH, 0).await.unwrap().id;
        let lock = async |id| FilesServer::lock(server, other.peer(), id, whole, false).await;
        let id = fixture.open("/small", BOTH).await.unwrap().id;
        assert_eq!(fixture.files.lock(id, whole, false).await, Ok(()));
        let (same, another) = (open("/small").await, open("/large").await);
        assert_eq!(lock(same).await, Err(DescriptionError::WouldBlock));
        let blocking = FilesServer::blocking_lock(server, other.peer(), same, whole).await;
        assert!(blocking.unwrap().is_some());
        assert_eq!(lock(another).await, Ok(()));
        let folder = fixture.open("/far", open::READ).await.unwrap().id;
        assert_eq!(fixture.files.lock(folder, whole, false).await, refused(DescriptionError::Invalid));
        fixture.descriptions.close(id).await.unwrap();
        assert_eq!(lock(same).await, Ok(()));
    });
}

#[test]
fn attributes_of_programs_are_for_files_and_folders() {
    let Some(image) = image() else { return };
    runtime::testing::run(async {
        let fixture = fixture(image, 1000, false);
        fixture.files.make_link(name("/link"), "small".into()).await.unwrap();
        let ask = async |id, request| fixture.descriptions.control(id, Control::Attribute(request)).await;
        let set = |name: &str| AttributeRequest::Set { name: name.into(), span: span(5), change: AttributeChange::Any };
        let get = |name: &str| AttributeRequest::Get { name: name.into(), span: span(5) };
        let remove = |name: &str| AttributeRequest::Remove { name: name.into() };
        let folder = fixture.open("/far", open::READ).await.unwrap().id;
        assert_eq!(ask(folder, set("user.x")).await, Ok(ControlReply::Done));
        let link = fixture.open("/link", open::PLACE | open::NO_FOLLOW).await.unwrap().id;
        assert_eq!(ask(link, set("user.x")).await, refused(DescriptionError::Denied));
        assert_eq!(ask(link, remove("user.x")).await, refused(DescriptionError::Denied));
        assert_eq!(ask(link, get("user.x")).await, refused(DescriptionError::NoAttribute));
        assert_eq!(ask(link, set("trusted.x")).await, Ok(ControlReply::Done));
        assert_eq!(ask(link, get("trusted.x")).await, Ok(ControlReply::Number(5)));
        assert_eq!(ask(link, set("other.x")).await, refused(DescriptionError::NotSupported));
    });
}
