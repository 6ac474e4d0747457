//! Clients: what they hold, give to each other and leave behind.

use contracts::files::Unnamed;

use super::*;

/// Descriptions that one client may have while no other has any.
const OPEN_EACH_MAX: usize = 4096;

/// A client that holds a page of a file without a name, which is all that the store has; the
/// memory of its channels for a successor, and for a monitor.
async fn holder(service: &Rc<Server>) -> (Client, [[Memory; 2]; 2]) {
    let [files, files_served, next_files, files_monitor] = loopback_memory(Layout::default());
    let [descriptions, served, next, monitor] = loopback_memory(BULK);
    let client = Client::over([[files, files_served], [descriptions, served]], service, 1);
    let id = client.opened("/file").await;
    client.write(id, None, b"bytes").await.unwrap();
    client.files.remove(name("/file"), false).await.unwrap();
    assert_eq!(client.files.space().await, Ok((1, PAGES - 1)));
    (client, [[next_files, files_monitor], [next, monitor]])
}

#[test]
fn what_a_client_held_goes_with_it_whichever_channel_tells_its_end() {
    for is_files in [true, false] {
        runtime::testing::run(async {
            let service = server();
            let other = Client::of(&service, 5);
            let (Client { files, descriptions }, _memory) = holder(&service).await;
            if is_files {
                drop(files)
            } else {
                drop(descriptions)
            }
            runtime::take_in_all().await;
            assert_eq!(other.files.space().await, Ok((0, PAGES)));
        });
    }
}

#[test]
fn what_a_client_held_is_not_its_successors() {
    runtime::testing::run(async {
        let service = server();
        let (_client, [[memory, monitor], _]) = holder(&service).await;
        monitor.raise_generation();
        let successor = FilesClient::new(ClientChannel::new(loopback_wiring(memory, true)));
        assert_eq!(successor.space().await, Ok((0, PAGES)));
    });
    runtime::testing::run(async {
        let service = server();
        let (client, [_, [memory, monitor]]) = holder(&service).await;
        monitor.raise_generation();
        let successor = DescriptionsClient::new(ClientChannel::new(loopback_wiring(memory, true)));
        assert_eq!(successor.status(1).await, denied(DescriptionError::BadId));
        assert_eq!(client.files.space().await, Ok((0, PAGES)));
    });
}

#[test]
fn what_a_client_exports_is_claimed_by_who_knows_the_ticket() {
    runtime::testing::run(async {
        let service = server();
        let [client, other] = [1, 5].map(|number| Client::of(&service, number));
        client.opened_to_read("/dev/null").await;
        client.opened_to_read("/dev/zero").await;
        let id = client.opened("/file").await;
        client.write(id, None, b"bytes").await.unwrap();
        let ticket = client.descriptions.export(id).await.unwrap();
        client.descriptions.close(id).await.unwrap();
        client.files.remove(name("/file"), false).await.unwrap();
        assert_eq!(other.descriptions.claim(ticket + 1).await, denied(DescriptionError::BadId));
        assert_eq!(other.descriptions.claim(ticket).await, Ok(id));
        assert_eq!(other.read(id, Some(0), 9).await, Ok(b"bytes".into()));
        assert_eq!(client.descriptions.export(id).await, denied(DescriptionError::BadId));
    });
}

#[test]
fn one_client_cannot_have_all_descriptions() {
    runtime::testing::run(async {
        let service = server();
        let (_, [first, second]) = two_programs(|channel| service.open.clients.add(channel));
        let open = async |peer| service.open(peer, name("/dev/null"), open::READ, 0).await;
        for _ in 0..OPEN_EACH_MAX {
            open(first.peer()).await.unwrap();
        }
        let full = || PathError::Failed(DescriptionError::TooMany);
        assert_eq!(open(first.peer()).await, Err(full()));
        let temporary = Unnamed::Temporary { may_link: false };
        let unnamed = service.open_unnamed(first.peer(), name("/tmp"), open::WRITE, 0, temporary).await;
        assert_eq!(unnamed, Err(full()));
        assert!(open(second.peer()).await.is_ok());
    });
}
