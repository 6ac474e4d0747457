//! Paths over all trees: the root's, which `fs` keeps, and that of the volume on the disk (decision
//! 87). A server answers where a path goes on that leads out of its tree, and is asked next.

use channel::{Call, CallError};
use contracts::files::{Beyond, FilesClient, Name, PathError, Tree};
use personality::Errno;
use personality::descriptors::server;
use serde::de::DeserializeOwned;

use super::errors::{AsErrno, Failure};
use super::proxy::proxy;
use super::wait::answer;

/// Times that a path may go on elsewhere: more are symbolic links that lead nowhere, of which Linux
/// follows 40.
const CROSSINGS_MAX: usize = 80;

/// A path, and the server that is to be asked for it first.
#[derive(Clone)]
pub struct Place {
    pub server: u32,
    pub name: Name,
}

impl Place {
    fn go_on(&mut self, Beyond { tree, path }: Beyond) {
        self.server = match tree {
            Tree::Root => server::FS,
            Tree::Volume => server::VOLUME,
        };
        (self.name.directory, self.name.path) = (None, path);
    }
}

/// Asks for a path where it ends, and tells which server that was. A signal cancels it.
pub async fn at_place<R: DeserializeOwned>(
    place: Place,
    ask: impl Fn(&FilesClient, Name) -> Call<R, PathError>,
) -> Result<(u32, R), Failure> {
    follow(place, async |files: &FilesClient, name| answer(ask(files, name)).await).await
}

/// The same, whatever signals come.
pub async fn whole<R: DeserializeOwned>(
    place: Place,
    ask: impl Fn(&FilesClient, Name) -> Call<R, PathError>,
) -> Result<(u32, R), Failure> {
    follow(place, async |files: &FilesClient, name| ask(files, name).await).await
}

async fn follow<R>(
    Place { mut server, mut name }: Place,
    ask: impl AsyncFn(&FilesClient, Name) -> Result<R, CallError<PathError>>,
) -> Result<(u32, R), Failure> {
    let (process, owner) = (name.process, name.owner);
    for _ in 0..CROSSINGS_MAX {
        let error = match ask(proxy().files_at(server)?, name).await {
            Ok(found) => return Ok((server, found)),
            Err(error) => error,
        };
        let CallError::Server(PathError::Beyond(beyond)) = error else { return Err(error.into()) };
        let mut next = Place { server, name: Name { directory: None, path: Default::default(), process, owner } };
        next.go_on(beyond);
        Place { server, name } = next;
    }
    Err(Errno::ELOOP.into())
}

/// The same path, as the server of the tree that it ends in has it. Without a volume there is one
/// tree, and nobody is asked.
pub async fn at_end(mut place: Place, follow: bool) -> Result<Place, Failure> {
    if !proxy().has_volume() {
        return Ok(place);
    }
    for _ in 0..CROSSINGS_MAX {
        match answer(proxy().files_at(place.server)?.locate(place.name.clone(), follow)).await {
            Ok(()) => return Ok(place),
            Err(CallError::Server(PathError::Beyond(beyond))) => place.go_on(beyond),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::ELOOP.into())
}

/// Two paths that have to be in one tree. `EXDEV`.
pub async fn in_one_tree(first: (Place, bool), second: Place) -> Result<(u32, Name, Name), Failure> {
    let (first, second) = (at_end(first.0, first.1).await?, at_end(second, false).await?);
    if first.server != second.server {
        return Err(Errno::EXDEV.into());
    }
    Ok((first.server, first.name, second.name))
}

/// The number of a file among those of all servers.
pub fn number_of(server: u32, inode: u64) -> u64 {
    if server == server::VOLUME { inode | contracts::files::OF_VOLUME } else { inode }
}

impl AsErrno for PathError {
    fn errno(self) -> Errno {
        match self {
            PathError::Failed(error) => error.errno(),
            // It changed between two questions.
            PathError::Beyond(_) => Errno::EXDEV,
        }
    }
}
