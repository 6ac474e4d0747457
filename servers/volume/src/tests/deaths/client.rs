//! A program that works in its own folder of the volume, and goes on with the server's next life.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use channel::{Bulk, BulkSpan, CallError};
use contracts::descriptions::{Control, DescriptionError, DescriptionId, Kind, Whence};
use contracts::files::{Change, Hold, Lock, LockKind, Name, PathError, Renaming, open};

use super::model::{Found, Model, Node, Object, Op, Path, pattern};
use super::world::{Ends, World};

/// What was open in earlier lives is tried, so many of the last ones.
const STALE: usize = 4;

/// The server went meanwhile, so nothing is known of what was asked.
#[derive(Debug)]
pub struct Gone;

type Outcome<T> = Result<T, Gone>;

pub struct Client {
    world: Rc<World>,
    ends: Ends,
    folder: String,
    model: Rc<RefCell<Model>>,
    /// The life of the server that it knows.
    life: u32,
    open: BTreeMap<Object, DescriptionId>,
    /// What was open in earlier lives.
    stale: Vec<DescriptionId>,
    writes: u32,
}

impl Client {
    pub fn new(world: Rc<World>, folder: &str, model: Rc<RefCell<Model>>) -> Client {
        let (ends, life) = (world.client(), world.life());
        let (open, stale, writes) = (BTreeMap::new(), Vec::new(), 0);
        Client { world, ends, folder: folder.into(), model, life, open, stale, writes }
    }

    fn known(&self) -> Ref<'_, Model> {
        self.model.borrow()
    }

    fn model(&self) -> RefMut<'_, Model> {
        self.model.borrow_mut()
    }

    fn name(&self, path: &str) -> Name {
        let path = format!("/{}/{path}", self.folder);
        Name { directory: None, path: path.trim_end_matches('/').into(), process: 1, owner: (0, 0) }
    }

    /// Does one thing, if it can be done; what the server's death leaves of it is looked at before
    /// the next one.
    pub async fn run(&mut self, op: Op) {
        self.settle().await;
        if self.act(op).await.is_err() {
            self.settle().await;
        }
    }

    /// An answer has come, or the server has gone. Nothing else is expected.
    fn answered<T, E: std::fmt::Debug>(&self, answer: Result<T, CallError<E>>) -> Outcome<T> {
        match answer {
            Ok(answer) => {
                self.world.step();
                Ok(answer)
            }
            Err(_) if self.life != self.world.life() => Err(Gone),
            Err(error) => panic!("{}: {error:?}", self.folder),
        }
    }

    async fn act(&mut self, op: Op) -> Outcome<()> {
        match op {
            Op::Open(path) => drop(self.opened(path, true).await?),
            Op::Close(path) => {
                let object = self.known().file(path);
                if let Some(id) = object.and_then(|object| self.open.remove(&object)) {
                    self.answered(self.ends.descriptions.close(id).await)?;
                }
            }
            Op::Write(path, at, length) => drop(self.write(path, at, length).await?),
            Op::WriteSynced(path, at, length) => {
                if let Some(object) = self.write(path, at, length).await? {
                    self.sync(object, true).await?;
                }
            }
            Op::Read(path) => {
                if let Some((object, id)) = self.opened(path, false).await? {
                    self.compare(object, id).await?;
                }
            }
            Op::Truncate(path, size) => {
                if let Some((object, id)) = self.opened(path, false).await? {
                    self.model().truncate(object, size);
                    self.answered(self.ends.descriptions.resize(id, size as u64).await)?;
                }
            }
            Op::Sync(path) | Op::DataSync(path) => {
                if let Some((object, _)) = self.opened(path, false).await? {
                    self.sync(object, matches!(op, Op::Sync(_))).await?;
                }
            }
            Op::SyncFolder(path) => self.sync_folder(path).await?,
            Op::SyncAll => {
                let covers = self.known().covers_all();
                self.answered(self.ends.files.synchronize_all(None).await)?;
                self.model().acknowledge(covers);
            }
            Op::UseRemoved => self.use_removed().await?,
            Op::CloseRemoved => {
                for (object, id) in self.removed() {
                    self.open.remove(&object);
                    self.answered(self.ends.descriptions.close(id).await)?;
                }
            }
            Op::Pause(ms) => runtime::sleep(ms * 1_000_000).await,
            _ => self.change_names(op).await?,
        }
        Ok(())
    }

    async fn change_names(&mut self, op: Op) -> Outcome<()> {
        let is_there = |path: Path| self.known().now().names.contains_key(path);
        let is_vacant = |path: Path| !is_there(path) && self.known().is_folder(super::model::above(path));
        let files = &self.ends.files;
        match op {
            Op::MakeFolder(path) if is_vacant(path) => {
                self.model().make(path, Node::Folder);
                self.answered(files.make_directory(self.name(path), 0o755).await)
            }
            Op::MakeLink(path, text) if is_vacant(path) => {
                self.model().make(path, Node::Link(text.into()));
                self.answered(files.make_link(self.name(path), text.into()).await)
            }
            Op::RemoveFolder(path) if is_there(path) && self.known().is_folder(path) => {
                let below = format!("{path}/");
                if self.known().now().names.keys().any(|name| name.starts_with(&below)) {
                    return Ok(());
                }
                self.model().remove(path);
                self.answered(files.remove(self.name(path), true).await)
            }
            Op::Remove(path) if is_there(path) && !self.known().is_folder(path) => {
                self.model().remove(path);
                self.answered(files.remove(self.name(path), false).await)
            }
            Op::Link(from, to) if is_vacant(to) && self.known().file(from).is_some() => {
                let node = self.known().now().names[from].clone();
                self.model().make(to, node);
                self.answered(files.link(self.name(from), false, self.name(to)).await)
            }
            Op::Rename(from, to) => {
                let (one, two) = (self.known().file(from), self.known().file(to));
                let may_go = one.is_some() && (is_vacant(to) || two.is_some());
                // Two names of one file stay, as rename(2) has it.
                if from == to || one == two || !may_go {
                    return Ok(());
                }
                self.model().rename(from, to);
                self.answered(files.rename(self.name(from), self.name(to), Renaming::Replace).await)
            }
            _ => Ok(()),
        }
    }

    /// A file that is open, or is opened; with `makes` also one that is not there.
    async fn opened(&mut self, path: Path, makes: bool) -> Outcome<Option<(Object, DescriptionId)>> {
        const BOTH: u32 = open::READ | open::WRITE;
        let is_vacant = !self.known().now().names.contains_key(path);
        if is_vacant && makes && self.known().is_folder(super::model::above(path)) {
            self.model().create(path);
            let opened = self.ends.files.open(self.name(path), BOTH | open::CREATE | open::EXCLUSIVE, 0o644).await;
            let id = self.answered(opened)?.id;
            let object = self.known().file(path).unwrap();
            self.open.insert(object, id);
            return Ok(Some((object, id)));
        }
        let object = self.known().file(path);
        let Some(object) = object else { return Ok(None) };
        if let Some(id) = self.open.get(&object) {
            return Ok(Some((object, *id)));
        }
        let opened = self.ends.files.open(self.name(path), BOTH, 0).await;
        let id = self.answered(opened)?.id;
        self.open.insert(object, id);
        Ok(Some((object, id)))
    }

    async fn write(&mut self, path: Path, at: usize, length: usize) -> Outcome<Option<Object>> {
        let Some((object, id)) = self.opened(path, true).await? else { return Ok(None) };
        self.write_to(object, id, at, length).await?;
        Ok(Some(object))
    }

    async fn write_to(&mut self, object: Object, id: DescriptionId, at: usize, length: usize) -> Outcome<()> {
        self.writes += 1;
        let bytes = pattern(object, self.writes, length);
        self.model().write(object, at, &bytes);
        self.ends.descriptions.bulk().write(0, &bytes).unwrap();
        let span = BulkSpan { offset: 0, length: length as u32 };
        let count = self.answered(self.ends.descriptions.write(id, span, Some(at as u64), true).await)?;
        assert_eq!(count as usize, length);
        Ok(())
    }

    async fn sync(&mut self, object: Object, whole: bool) -> Outcome<()> {
        let (covers, id) = (self.known().covers_file(object), self.open[&object]);
        self.answered(self.ends.files.synchronize(id, whole).await)?;
        self.model().acknowledge(covers);
        Ok(())
    }

    async fn sync_folder(&mut self, path: Path) -> Outcome<()> {
        if !self.known().is_folder(path) {
            return Ok(());
        }
        let opened = self.ends.files.open(self.name(path), open::READ | open::DIRECTORY, 0).await;
        let id = self.answered(opened)?.id;
        let covers = self.known().covers_folder(path);
        let answer = self.ends.files.synchronize(id, true).await;
        self.stale.extend((self.life != self.world.life()).then_some(id));
        self.answered(answer)?;
        self.model().acknowledge(covers);
        self.answered(self.ends.descriptions.close(id).await)
    }

    /// What is open and has no name.
    fn removed(&self) -> Vec<(Object, DescriptionId)> {
        let is_removed = |(object, _): &(&Object, &DescriptionId)| !self.known().is_named(**object);
        self.open.iter().filter(is_removed).map(|(object, id)| (*object, *id)).collect()
    }

    async fn use_removed(&mut self) -> Outcome<()> {
        for (object, id) in self.removed() {
            self.write_to(object, id, 3000, 3000).await?;
            self.compare(object, id).await?;
        }
        Ok(())
    }

    /// All bytes of an open file are what was written.
    async fn compare(&self, object: Object, id: DescriptionId) -> Outcome<()> {
        let expected = self.known().now().bytes[&object].clone();
        let found = self.read_all(id).await;
        let found = self.answered(found)?;
        assert!(found == *expected, "{}: file {object} of {} bytes has others", self.folder, expected.len());
        Ok(())
    }

    async fn read_all(&self, id: DescriptionId) -> Result<Vec<u8>, CallError<DescriptionError>> {
        let (bulk, mut all) = (self.ends.descriptions.bulk(), Vec::new());
        loop {
            let span = BulkSpan { offset: 0, length: bulk.len() as u32 };
            let count = self.ends.descriptions.read(id, span, Some(all.len() as u64), true).await? as usize;
            if count == 0 {
                return Ok(all);
            }
            let from = all.len();
            all.resize(from + count, 0);
            bulk.read(0, &mut all[from..]).unwrap();
        }
    }

    /// The folder is as it may be.
    pub async fn check(&self) {
        let found = self.tree().await.unwrap_or_else(|error| panic!("{}: {error:?}", self.folder));
        self.adopt(found);
    }

    fn adopt(&self, found: BTreeMap<String, Found>) {
        let known = self.model().adopt(self.life, found);
        known.unwrap_or_else(|how| panic!("{}:{how}", self.folder));
    }

    /// If the server is another one: nothing is open any more, and the folder is as it may be.
    pub async fn settle(&mut self) {
        if self.life == self.world.life() {
            return;
        }
        self.stale.extend(std::mem::take(&mut self.open).into_values());
        loop {
            self.life = self.world.life();
            spoil(&self.ends.descriptions.bulk());
            let found = self.look().await;
            match found {
                Ok(found) => return self.adopt(found),
                // It has gone again, or the call went to the one before.
                Err(_) if self.life != self.world.life() => {}
                Err(CallError::PeerRestarted) => {}
                Err(error) => panic!("{}: {error:?}", self.folder),
            }
        }
    }

    async fn look(&self) -> Result<BTreeMap<String, Found>, CallError<PathError>> {
        for id in self.stale.iter().rev().take(STALE) {
            self.try_stale(*id).await?;
        }
        self.tree().await
    }

    /// All of the folder, as it is.
    async fn tree(&self) -> Result<BTreeMap<String, Found>, CallError<PathError>> {
        let (files, descriptions) = (&self.ends.files, &self.ends.descriptions);
        let (mut tree, mut folders) = (BTreeMap::new(), vec![String::new()]);
        while let Some(folder) = folders.pop() {
            let id = files.open(self.name(&folder), open::READ | open::DIRECTORY, 0).await?.id;
            let mut from = 0;
            loop {
                let (entries, next) = descriptions.entries(id, from).await.map_err(of_path)?;
                if entries.is_empty() {
                    break;
                }
                from = next;
                for entry in entries.into_iter().filter(|entry| !matches!(&*entry.name, "." | "..")) {
                    let path = if folder.is_empty() { entry.name } else { format!("{folder}/{}", entry.name) };
                    let found = match entry.kind {
                        Kind::Directory => {
                            folders.push(path.clone());
                            Found::Folder
                        }
                        Kind::SymbolicLink => Found::Link(files.read_link(self.name(&path)).await?),
                        _ => {
                            let id = files.open(self.name(&path), open::READ, 0).await?.id;
                            let bytes = self.read_all(id).await.map_err(of_path)?;
                            descriptions.close(id).await.map_err(of_path)?;
                            Found::File(entry.inode, bytes)
                        }
                    };
                    assert!(tree.insert(path, found).is_none(), "a name is there twice");
                }
            }
            descriptions.close(id).await.map_err(of_path)?;
        }
        Ok(tree)
    }

    /// What was open in an earlier life gives EIO, whatever is asked of it, and no byte.
    async fn try_stale(&self, id: DescriptionId) -> Result<(), CallError<PathError>> {
        let (files, descriptions) = (&self.ends.files, &self.ends.descriptions);
        let span = BulkSpan { offset: 0, length: 4096 };
        let lock = Lock { kind: LockKind::Client, hold: Some(Hold::Shared), from: 0, to: 1, process: 1 };
        is_failed(descriptions.read(id, span, Some(0), true).await)?;
        is_failed(descriptions.write(id, span, Some(0), true).await)?;
        is_failed(descriptions.write(id, span, None, true).await)?;
        is_failed(descriptions.seek(id, 0, Whence::Start).await)?;
        is_failed(descriptions.status(id).await)?;
        is_failed(descriptions.resize(id, 0).await)?;
        is_failed(descriptions.entries(id, 0).await)?;
        is_failed(descriptions.control(id, Control::Available).await)?;
        is_failed(descriptions.export(id).await)?;
        is_failed(files.synchronize(id, true).await)?;
        is_failed(files.synchronize_all(Some(id)).await)?;
        is_failed(files.reopen(id, open::READ).await)?;
        is_failed(files.change(id, Change::default()).await)?;
        is_failed(files.set_append(id, true).await)?;
        is_failed(files.path_of(id).await)?;
        is_failed(files.lock(id, lock, false).await)?;
        is_failed(files.blocking_lock(id, lock).await)?;
        let linked = files.link_opened(id, self.name("stale")).await;
        is_failed(linked.map_err(of_description))?;
        let within = Name { directory: Some(id), path: "stale".into(), process: 1, owner: (0, 0) };
        let made = files.open(within, open::WRITE | open::CREATE, 0o644).await;
        is_failed(made.map_err(of_description))
    }
}

/// What was in a program's part of memory when the server died is of no use to the next one.
fn spoil(bulk: &Bulk) {
    bulk.write(0, &vec![0xee; bulk.len()]).unwrap();
}

fn of_path(error: CallError<DescriptionError>) -> CallError<PathError> {
    match error {
        CallError::Server(error) => CallError::Server(error.into()),
        _ => CallError::PeerRestarted,
    }
}

fn of_description(error: CallError<PathError>) -> CallError<DescriptionError> {
    match error {
        CallError::Server(PathError::Failed(error)) => CallError::Server(error),
        CallError::Server(PathError::Beyond(_)) => CallError::Server(DescriptionError::CrossDevice),
        _ => CallError::PeerRestarted,
    }
}

/// EIO, or the server has gone.
fn is_failed<T: std::fmt::Debug>(answer: Result<T, CallError<DescriptionError>>) -> Result<(), CallError<PathError>> {
    match answer {
        Err(CallError::Server(DescriptionError::Failed)) => Ok(()),
        Err(CallError::PeerRestarted) => Err(CallError::PeerRestarted),
        other => panic!("an old description: {other:?}"),
    }
}
