//! Seals, and bytes of files that are memory of programs.

use contracts::files::{Unnamed, seal};

use super::*;

const MEMORY: u64 = 9;
const PAGE: u64 = 4096;

fn lock(kind: LockKind, hold: Hold) -> Lock {
    Lock { kind, hold: Some(hold), from: 0, to: PAGE, process: PROCESS }
}

/// As who maps the bytes asks for them, to write there.
fn claim() -> Lock {
    lock(LockKind::Mapped(MEMORY), Hold::Exclusive)
}

/// A file that may be sealed, open to read and to write.
async fn sealable(client: &Client) -> DescriptionId {
    let (place, flags, purpose) = (name("memory"), open::READ | open::WRITE, Unnamed::Memory { may_seal: true });
    client.files.open_unnamed(place, flags, 0o600, purpose).await.unwrap().id
}

async fn mapping(client: &Client, id: DescriptionId) -> DescriptionId {
    client.files.reopen(id, open::READ | open::WRITE | open::MAPPING).await.unwrap().id
}

#[test]
fn a_file_is_sealed_by_who_may_write_there() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        let id = sealable(&client).await;
        let reader = client.files.reopen(id, open::READ).await.unwrap().id;
        assert_eq!(client.files.seals(id).await, Ok(0));
        assert_eq!(client.files.add_seals(reader, seal::GROW).await, denied(DescriptionError::Denied));
        assert_eq!(client.files.add_seals(id, seal::GROW).await, Ok(()));
        assert_eq!(client.files.seals(reader).await, Ok(seal::GROW));
        assert_eq!(client.descriptions.resize(id, 1).await, denied(DescriptionError::Denied));
        let others = [client.opened("/file").await, client.open("/dev/null", open::WRITE).await.unwrap().id];
        for other in others {
            assert_eq!(client.files.seals(other).await, denied(DescriptionError::Invalid));
            assert_eq!(client.files.add_seals(other, seal::GROW).await, denied(DescriptionError::Invalid));
        }
    });
}

#[test]
fn a_file_is_not_sealed_against_writing_while_it_is_memory_of_programs() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        for against in [seal::WRITE, seal::FUTURE_WRITE] {
            let id = sealable(&client).await;
            let mapping = mapping(&client, id).await;
            assert_eq!(client.files.lock(mapping, claim(), false).await, Ok(()));
            assert_eq!(client.files.add_seals(id, against).await, denied(DescriptionError::Busy));
            assert_eq!(client.files.add_seals(id, seal::SHRINK).await, Ok(()), "it is not against writing");
            client.descriptions.close(mapping).await.unwrap();
            assert_eq!(client.files.add_seals(id, against).await, Ok(()));
            assert_eq!(client.files.seals(id).await, Ok(against | seal::SHRINK));
        }
    });
}

#[test]
fn what_is_sealed_against_writing_is_mapped_by_none_who_writes() {
    runtime::testing::run(async {
        let client = Client::of(&server(), 1);
        for (seals, expected) in [
            (seal::WRITE, denied(DescriptionError::Denied)),
            (seal::FUTURE_WRITE, denied(DescriptionError::Denied)),
            (seal::SHRINK, Ok(())),
        ] {
            let id = sealable(&client).await;
            client.files.add_seals(id, seals).await.unwrap();
            let mapping = mapping(&client, id).await;
            let shared = lock(LockKind::Mapped(MEMORY), Hold::Shared);
            let shared = client.files.lock(mapping, shared, false).await;
            assert_eq!(shared, denied(DescriptionError::NotFound), "there is nothing to share");
            assert_eq!(client.files.lock(id, lock(LockKind::Client, Hold::Exclusive), false).await, Ok(()));
            assert_eq!(client.files.lock(mapping, claim(), false).await, expected);
        }
    });
}

#[test]
fn bytes_that_are_memory_of_programs_are_changed_by_these_alone() {
    runtime::testing::run(async {
        let service = server();
        let [client, other] = [1, 5].map(|number| Client::of(&service, number));
        let id = client.opened("/file").await;
        let others = other.opened("/file").await;
        client.write(id, Some(0), &[1; 3 * PAGE as usize]).await.unwrap();
        let mapping = mapping(&client, id).await;
        assert_eq!(client.files.lock(mapping, claim(), false).await, Ok(()));
        assert_eq!(other.write(others, Some(PAGE - 1), b"xy").await, denied(DescriptionError::Denied));
        assert_eq!(other.descriptions.resize(others, PAGE - 1).await, denied(DescriptionError::Denied));
        let emptied = other.open("/file", open::WRITE | open::TRUNCATE).await;
        assert_eq!(emptied, refused(DescriptionError::Denied));
        assert_eq!(other.write(others, Some(PAGE), b"xy").await, Ok(2), "it is behind them");
        assert_eq!(other.descriptions.resize(others, 2 * PAGE).await, Ok(()));
        assert_eq!(client.write(id, Some(PAGE - 1), b"ab").await, Ok(2));
        client.descriptions.close(mapping).await.unwrap();
        assert_eq!(other.write(others, Some(PAGE - 1), b"xy").await, Ok(2));
    });
}

#[test]
fn a_lock_that_stands_in_the_way_is_told() {
    runtime::testing::run(async {
        let service = server();
        let [client, other] = [1, 5].map(|number| Client::of(&service, number));
        let (id, others) = (client.opened("/file").await, other.opened("/file").await);
        let wanted = lock(LockKind::Client, Hold::Exclusive);
        assert_eq!(other.files.blocking_lock(others, wanted).await, Ok(None));
        client.files.lock(id, wanted, false).await.unwrap();
        assert_eq!(other.files.blocking_lock(others, wanted).await, Ok(Some(wanted)));
        assert_eq!(other.files.lock(others, wanted, false).await, denied(DescriptionError::WouldBlock));
        let device = client.open("/dev/null", open::READ | open::WRITE).await.unwrap().id;
        assert_eq!(client.files.lock(device, wanted, false).await, denied(DescriptionError::Invalid));
    });
}
