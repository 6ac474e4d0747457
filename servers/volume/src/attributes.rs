//! Extended attributes of the volume's files.

use alloc::vec;
use alloc::vec::Vec;

use channel::Peer;
use contracts::descriptions::*;
use ext4::{Kind as Ext4Kind, SetXattr};
use runtime::Bulk;

use crate::descriptions::check;
use crate::server::Server;

/// Names that programs choose begin so.
const OF_PROGRAMS: &[u8] = b"user.";

/// Puts bytes into a window, as far as they fit; gives how many there are.
fn put(window: &Bulk, bytes: &[u8]) -> Result<ControlReply, DescriptionError> {
    let part = &bytes[..bytes.len().min(window.len())];
    window.write(0, part).map_err(|_| DescriptionError::Invalid)?;
    Ok(ControlReply::Number(bytes.len() as u64))
}

impl Server {
    /// See [`AttributeRequest`].
    pub async fn attribute(
        &self,
        peer: &Peer,
        id: DescriptionId,
        request: AttributeRequest,
    ) -> Result<ControlReply, DescriptionError> {
        let (number, kind) = self.with(peer, id, |open| Ok((open.target.inode, open.target.kind)))?;
        match request {
            AttributeRequest::Get { name, span } => {
                let window = check(&peer.bulk(), span)?;
                if !may_have(kind, &name) {
                    return Err(DescriptionError::NoAttribute);
                }
                let value = self.ask(|volume, blocks| volume.xattr(blocks, &volume.inode(blocks, number)?, &name));
                put(&window, &value.await?)
            }
            AttributeRequest::List { span } => {
                let window = check(&peer.bulk(), span)?;
                let names = self.ask(|volume, blocks| volume.xattrs(blocks, &volume.inode(blocks, number)?)).await?;
                let all: Vec<u8> = names.iter().flat_map(|name| name.iter().copied().chain([0])).collect();
                put(&window, &all)
            }
            AttributeRequest::Set { name, span, change } => {
                let window = check(&peer.bulk(), span)?;
                let mut value = vec![0; window.len()];
                window.read(0, &mut value).map_err(|_| DescriptionError::Invalid)?;
                self.may_set(kind, &name)?;
                let how = match change {
                    AttributeChange::Any => SetXattr::Any,
                    AttributeChange::New => SetXattr::Create,
                    AttributeChange::Old => SetXattr::Replace,
                };
                self.change(|operation| operation.set_xattr(number, &name, &value, how)).await?;
                Ok(ControlReply::Done)
            }
            AttributeRequest::Remove { name } => {
                self.may_set(kind, &name)?;
                self.change(|operation| operation.remove_xattr(number, &name)).await?;
                Ok(ControlReply::Done)
            }
        }
    }

    fn may_set(&self, kind: Ext4Kind, name: &[u8]) -> Result<(), DescriptionError> {
        if self.is_read_only() {
            Err(DescriptionError::ReadOnly)
        } else if may_have(kind, name) {
            Ok(())
        } else {
            Err(DescriptionError::Denied)
        }
    }
}

/// May something of that kind have an attribute of that name?
fn may_have(kind: Ext4Kind, name: &[u8]) -> bool {
    !name.starts_with(OF_PROGRAMS) || matches!(kind, Ext4Kind::File | Ext4Kind::Directory)
}
