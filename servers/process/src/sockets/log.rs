//! The sockets that take what programs send to the machine's log.

use contracts::descriptions::{DescriptionError as Error, DescriptionId};
use contracts::process::Credentials;
use contracts::sockets::SocketKind;

use super::{Key, Sockets};

/// Where programs send what is for the log.
#[derive(Debug)]
pub struct Log {
    /// The file that stands for both.
    pub file: u64,
    datagrams: DescriptionId,
    stream: DescriptionId,
}

impl Log {
    /// The one of this kind. `WrongKind`.
    pub fn socket(&self, kind: SocketKind) -> Result<DescriptionId, Error> {
        match kind {
            SocketKind::Datagram => Ok(self.datagrams),
            SocketKind::Stream => Ok(self.stream),
            SocketKind::Packets => Err(Error::WrongKind),
        }
    }
}

impl Sockets {
    /// What is sent to the name of this file, in messages or as a stream, is for the log. It is one
    /// file as long as the machine runs.
    pub fn open_log(&mut self, file: u64, [datagrams, stream]: [DescriptionId; 2]) {
        if self.log.is_none() {
            self.add(datagrams, SocketKind::Datagram, Credentials::default());
            self.add(stream, SocketKind::Stream, Credentials::default());
            self.names.insert(Key::File(file), datagrams);
            self.log = Some(Log { file, datagrams, stream });
        }
    }

    pub(super) fn is_log(&self, id: DescriptionId) -> bool {
        self.log.as_ref().is_some_and(|log| [log.datagrams, log.stream].contains(&id))
    }
}
