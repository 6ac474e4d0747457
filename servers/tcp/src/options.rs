//! Settings of a description.

use contracts::descriptions::{DescriptionError as Error, DescriptionId};
use contracts::sockets::{SocketKind, SocketOption, SocketOptionName};
use packet::Memory;
use smoltcp::time::Duration;

use crate::connection::{RECEIVE_BYTES, SEND_BYTES};
use crate::sockets::{ClientId, Kind, Sockets};

/// Between keep-alive probes (Linux: two hours).
const KEEP_ALIVE_S: u64 = 7200;

impl<M: Memory> Sockets<M> {
    /// Sets an option.
    pub fn set_option(&mut self, client: ClientId, id: DescriptionId, option: SocketOption) -> Result<(), Error> {
        let description = self.get(client, id)?;
        match option {
            SocketOption::ReuseAddress(on) => description.reuse = on,
            SocketOption::KeepAlive(on) => description.keep_alive = on,
            SocketOption::NoDelay(on) => description.no_delay = on,
            SocketOption::Linger(seconds) => description.linger_s = seconds,
            // Fixed sizes; `option` tells which.
            SocketOption::SendBuffer(_) | SocketOption::ReceiveBuffer(_) => {}
            SocketOption::Error(_) | SocketOption::Listening(_) | SocketOption::Kind(_) => return Err(Error::Invalid),
        }
        self.apply_options(client, id)
    }

    pub(crate) fn apply_options(&mut self, client: ClientId, id: DescriptionId) -> Result<(), Error> {
        let description = self.get(client, id)?;
        let (keep_alive, no_delay) = (description.keep_alive, description.no_delay);
        let Kind::Connected(connection) = description.kind else { return Ok(()) };
        if let Some(socket) = self.tcp.socket_mut(connection) {
            socket.set_keep_alive(keep_alive.then_some(Duration::from_secs(KEEP_ALIVE_S)));
            socket.set_nagle_enabled(!no_delay);
        }
        Ok(())
    }

    /// Reads an option.
    pub fn option(
        &mut self,
        client: ClientId,
        id: DescriptionId,
        name: SocketOptionName,
    ) -> Result<SocketOption, Error> {
        let description = self.get(client, id)?;
        Ok(match name {
            SocketOptionName::ReuseAddress => SocketOption::ReuseAddress(description.reuse),
            SocketOptionName::KeepAlive => SocketOption::KeepAlive(description.keep_alive),
            SocketOptionName::NoDelay => SocketOption::NoDelay(description.no_delay),
            SocketOptionName::Linger => SocketOption::Linger(description.linger_s),
            SocketOptionName::SendBuffer => SocketOption::SendBuffer(SEND_BYTES as u32),
            SocketOptionName::ReceiveBuffer => SocketOption::ReceiveBuffer(RECEIVE_BYTES as u32),
            SocketOptionName::Listening => SocketOption::Listening(matches!(description.kind, Kind::Listening(_))),
            SocketOptionName::Kind => SocketOption::Kind(SocketKind::Stream),
            SocketOptionName::Error => {
                let Kind::Connected(connection) = description.kind else { return Ok(SocketOption::Error(None)) };
                SocketOption::Error(self.fault(connection).err())
            }
        })
    }
}
