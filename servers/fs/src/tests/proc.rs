//! What /proc shows of what other servers tell.

use contracts::files::{Elsewhere, PROC_DEVICE};
use contracts::testing::process::acts_as;

use super::*;

/// Names at the top, with their kinds, besides processes.
const TOP: [(&str, Kind); 10] = [
    ("meminfo", Kind::File),
    ("uptime", Kind::File),
    ("loadavg", Kind::File),
    ("mounts", Kind::File),
    ("cpuinfo", Kind::File),
    ("version", Kind::File),
    ("stat", Kind::File),
    ("filesystems", Kind::File),
    ("self", Kind::SymbolicLink),
    ("sys", Kind::Directory),
];
/// The same for a process.
const OF_PROCESS: [(&str, Kind); 8] = [
    ("stat", Kind::File),
    ("status", Kind::File),
    ("cmdline", Kind::File),
    ("comm", Kind::File),
    ("mounts", Kind::File),
    ("mountinfo", Kind::File),
    ("fd", Kind::Directory),
    ("task", Kind::Directory),
];

/// A client, and the processes that there are: its own and others.
fn begin(ids: impl IntoIterator<Item = u32>) -> (Client, Rc<Played>) {
    let (service, played) = mounted(None);
    *played.ids.borrow_mut() = ids.into_iter().collect();
    (Client::of(&service, 1), played)
}

async fn text(client: &Client, path: &str) -> String {
    let id = client.opened_to_read(path).await;
    String::from_utf8(client.read(id, None, 9999).await.unwrap()).unwrap()
}

/// What a folder lists is what is found there.
async fn lists(client: &Client, folder: &str, expected: Vec<(String, Kind)>) {
    let id = client.open(folder, open::READ | open::DIRECTORY).await.unwrap().id;
    let listed = client.listed(id).await;
    assert_eq!(listed.iter().map(|(name, _, kind)| (name.clone(), *kind)).collect::<Vec<_>>(), expected, "{folder}");
    for (name, inode, kind) in listed {
        let status = client.status(&format!("{folder}/{name}")).await.unwrap();
        assert_eq!((status.inode, status.kind, status.device), (inode, kind, PROC_DEVICE), "{folder}/{name}");
    }
}

fn owned(names: &[(&str, Kind)]) -> Vec<(String, Kind)> {
    names.iter().map(|(name, kind)| (String::from(*name), *kind)).collect()
}

#[test]
fn all_processes_are_listed_with_what_is_known_of_each() {
    runtime::testing::run(async {
        // The last one comes alone.
        let ids: Vec<u32> = (1..=9).chain([77, 78]).collect();
        let (client, played) = begin(ids.clone());
        let processes = ids.iter().map(|id| (id.to_string(), Kind::Directory));
        lists(&client, "/proc", owned(&TOP).into_iter().chain(processes).collect()).await;
        lists(&client, "/proc/77", owned(&OF_PROCESS)).await;
        lists(&client, "/proc/sys", owned(&[("fs", Kind::Directory), ("kernel", Kind::Directory)])).await;
        lists(&client, "/proc/sys/kernel", owned(&[("threads-max", Kind::File)])).await;
        lists(&client, "/proc/77/fd", owned(&[])).await;
        assert_eq!(text(&client, "/proc/sys/fs/pipe-max-size").await, "65536\n");
        assert_eq!(text(&client, "/proc/77/comm").await, "name-77\n");
        // A server that tells the same again and again is asked no more.
        played.is_stuck.set(true);
        assert_eq!(text(&client, "/proc/loadavg").await, "0.00 0.00 0.00 1/5 5\n");
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    runtime::testing::run(async {
        let (client, _) = begin([7, 77]);
        for (path, error) in [
            ("/proc/none", DescriptionError::NotFound),
            ("/proc/6", DescriptionError::NotFound),
            ("/proc/6/stat", DescriptionError::NotFound),
            ("/proc/78", DescriptionError::NotFound),
            ("/proc/7/none", DescriptionError::NotFound),
            ("/proc/77/fd/3", DescriptionError::NotFound),
            ("/proc/sys/none", DescriptionError::NotFound),
            ("/proc/self7", DescriptionError::NotFound),
            ("/proc/meminfo/x", DescriptionError::NotDirectory),
        ] {
            assert_eq!(client.open(path, open::READ).await, refused(error), "{path}");
            assert_eq!(client.status(path).await, refused(error), "{path}");
            assert_eq!(client.files.read_link(name(path)).await, refused(error), "{path}");
        }
        let open = async |path, flags| client.open(path, flags).await.map(|opened| opened.kind);
        assert_eq!(open("/proc/7/stat", open::READ | open::WRITE).await, refused(DescriptionError::Denied));
        assert_eq!(open("/proc/7/stat", open::READ | open::DIRECTORY).await, refused(DescriptionError::NotDirectory));
        assert_eq!(open("/proc/7/stat", open::READ).await, Ok(Kind::File));
        assert_eq!(client.files.read_link(name("/proc/7/stat")).await, refused(DescriptionError::Invalid));
    });
}

#[test]
fn self_is_the_process_that_asks() {
    runtime::testing::run(async {
        let (client, _) = begin([7, 77]);
        assert_eq!(client.files.read_link(name("/proc/self")).await, Ok(PROCESS.to_string()));
        assert_eq!(client.kind("/proc/self").await, Ok(Kind::SymbolicLink));
        assert_eq!(client.open("/proc/self", open::READ | open::NO_FOLLOW).await, refused(DescriptionError::Loop));
        let followed = client.files.status(name("/proc/self"), true).await.unwrap();
        assert_eq!((followed.kind, followed.inode), (Kind::Directory, client.status("/proc/7").await.unwrap().inode));
        assert_eq!(text(&client, "/proc/self/comm").await, "name-7\n");
        assert_eq!(client.kind("/proc/self/comm").await, Ok(Kind::File));
        let directory = client.opened_to_read("/proc/self").await;
        let comm = client.files.open(from(directory, "comm"), open::READ, 0).await.unwrap();
        assert_eq!(client.files.path_of(comm.id).await, Ok("/proc/7/comm".into()));
    });
}

#[test]
fn what_only_the_process_itself_knows_it_is_to_open_itself() {
    runtime::testing::run(async {
        let (client, _) = begin([7, 77]);
        for (path, kind, elsewhere) in [
            ("/proc/self/fd", Kind::Directory, Some(Elsewhere::Descriptors)),
            ("/proc/7/fd", Kind::Directory, Some(Elsewhere::Descriptors)),
            ("/proc/self/task", Kind::Directory, Some(Elsewhere::Threads)),
            ("/proc/self/fd/3", Kind::File, Some(Elsewhere::Descriptor(3))),
            ("/dev/stdout", Kind::File, Some(Elsewhere::Descriptor(1))),
            ("/proc/77/fd", Kind::Directory, None),
            ("/proc/77/task", Kind::Directory, None),
        ] {
            let opened = client.open(path, open::READ).await.unwrap();
            assert_eq!((opened.kind, opened.elsewhere), (kind, elsewhere), "{path}");
        }
        assert_eq!(client.kind("/proc/self/fd/3").await, Ok(Kind::SymbolicLink));
        assert_eq!(client.kind("/proc/self/fd").await, Ok(Kind::Directory));
    });
}

#[test]
fn files_of_a_process_are_whose_it_acts_as_and_others_are_roots() {
    runtime::testing::run(async {
        let (client, _) = begin([7, 77]);
        let root = (0, 0);
        for (path, owner, permissions) in [
            ("/proc", root, 0o555),
            ("/proc/version", root, 0o444),
            ("/proc/self", root, 0o777),
            ("/proc/self/fd/3", root, 0o777),
            ("/proc/sys/kernel/threads-max", root, 0o444),
            ("/proc/77", acts_as(77), 0o555),
            ("/proc/77/stat", acts_as(77), 0o444),
            ("/proc/77/fd", acts_as(77), 0o555),
        ] {
            let status = client.status(path).await.unwrap();
            assert_eq!(((status.user, status.group), status.permissions), (owner, permissions), "{path}");
            if permissions != 0o777 {
                let opened = client.descriptions.status(client.opened_to_read(path).await).await.unwrap();
                let all = |status: &Status| (status.kind, status.inode, status.user, status.group, status.permissions);
                assert_eq!(all(&opened), all(&status), "{path}");
            }
        }
    });
}

#[test]
fn the_machine_is_told_as_its_servers_tell_it() {
    runtime::testing::run(async {
        let (client, _) = begin([7, 77]);
        let id = client.opened("/file").await;
        client.write(id, None, &[1; 5000]).await.unwrap();
        let all = text(&client, "/proc/meminfo").await;
        let told = |what: &str| {
            let line = all.lines().find(|line| line.starts_with(what)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        // The second of three cores says nothing.
        assert_eq!((told("MemTotal:"), told("MemFree:"), told("Cached:")), (4 * (4000 + 40), 4 * 40, 4 * 2));
        runtime::sleep(62_340_000_000).await;
        assert_eq!(text(&client, "/proc/uptime").await, "62.34 0.00\n");
        let stat = text(&client, "/proc/stat").await;
        assert!(stat.contains("\nbtime 0\nprocesses 2\n"), "the host's day begins with the machine: {stat}");
        assert_eq!(stat.lines().filter(|line| line.starts_with("cpu")).count(), 1 + CORES as usize);
    });
}
