//! Settings of a description.

use contracts::descriptions::{DescriptionError as Error, DescriptionId};
use contracts::sockets::{ConnectionInfo, Family, SocketKind, SocketOption, SocketOptionName};
use packet::Memory;
use smoltcp::time::Duration;

use crate::connection::{RECEIVE_BYTES, SEND_BYTES};
use crate::datagrams::QUEUE_BYTES;
use crate::sockets::{ClientId, Kind, Sockets};

/// States that have no connection, as Linux numbers them.
pub(crate) const CLOSED: u8 = 7;
const LISTENS: u8 = 10;
/// Between keep-alive probes (Linux: two hours).
const KEEP_ALIVE_S: u64 = 7200;

impl<M: Memory> Sockets<M> {
    /// Sets an option.
    pub fn set_option(&mut self, client: ClientId, id: DescriptionId, option: SocketOption) -> Result<(), Error> {
        let description = self.get(client, id)?;
        match option {
            SocketOption::ReuseAddress(on) => description.reuse = on,
            SocketOption::ReusePort(on) => description.shares_port = on,
            SocketOption::Only6(on) if description.family == Family::Internet6 => description.only_6 = on,
            SocketOption::KeepAlive(on) => description.keep_alive = on,
            SocketOption::NoDelay(on) => {
                description.no_delay = on;
                // As on Linux, a corked socket then lets go what it has, too.
                if on {
                    self.release(client, id)?;
                }
            }
            SocketOption::Cork(on) => {
                description.is_corked = on;
                if !on {
                    self.release(client, id)?;
                }
            }
            SocketOption::Linger(seconds) => description.linger_s = seconds,
            // Fixed sizes; `option` tells which.
            SocketOption::SendBuffer(_) | SocketOption::ReceiveBuffer(_) => {}
            SocketOption::Error(_)
            | SocketOption::Listening(_)
            | SocketOption::Kind(_)
            | SocketOption::Family(_)
            | SocketOption::Info(_) => return Err(Error::Invalid),
            SocketOption::Peer(_) | SocketOption::TellsSender(_) | SocketOption::Only6(_) => {
                return Err(Error::NotSupported);
            }
        }
        self.apply_options(client, id)
    }

    /// Lets go what waits for more to be written.
    fn release(&mut self, client: ClientId, id: DescriptionId) -> Result<(), Error> {
        if let Kind::Connected(connection) = self.get(client, id)?.kind
            && let Some(connection) = self.tcp.connection_mut(connection)
        {
            connection.release();
        }
        Ok(())
    }

    pub(crate) fn apply_options(&mut self, client: ClientId, id: DescriptionId) -> Result<(), Error> {
        let description = self.get(client, id)?;
        let shares = description.reuse || description.shares_port;
        let (keep_alive, no_delay) = (description.keep_alive, description.no_delay);
        if description.is_datagrams() {
            // Linux lets them share with either option.
            self.tcp.datagrams.get_mut(id)?.shares = shares;
            return Ok(());
        }
        let Kind::Connected(connection) = description.kind else { return Ok(()) };
        if let Some(connection) = self.tcp.connection_mut(connection) {
            connection.socket_mut().set_keep_alive(keep_alive.then_some(Duration::from_secs(KEEP_ALIVE_S)));
            connection.set_delays(!no_delay);
        }
        Ok(())
    }

    /// Reads an option.
    pub fn option(
        &mut self,
        client: ClientId,
        id: DescriptionId,
        name: SocketOptionName,
        now_ns: u64,
    ) -> Result<SocketOption, Error> {
        let description = self.get(client, id)?;
        Ok(match name {
            SocketOptionName::ReusePort => SocketOption::ReusePort(description.shares_port),
            SocketOptionName::Only6 => SocketOption::Only6(description.only_6),
            SocketOptionName::Family => SocketOption::Family(description.family),
            SocketOptionName::SendBuffer | SocketOptionName::ReceiveBuffer if description.is_datagrams() => {
                SocketOption::ReceiveBuffer(QUEUE_BYTES as u32)
            }
            SocketOptionName::ReuseAddress => SocketOption::ReuseAddress(description.reuse),
            SocketOptionName::KeepAlive => SocketOption::KeepAlive(description.keep_alive),
            SocketOptionName::NoDelay => SocketOption::NoDelay(description.no_delay),
            SocketOptionName::Cork => SocketOption::Cork(description.is_corked),
            SocketOptionName::Info => SocketOption::Info(match description.kind {
                Kind::Connected(connection) => self.tcp.info(connection, now_ns),
                Kind::Listening(_) | Kind::Unheard => ConnectionInfo { state: LISTENS, ..ConnectionInfo::default() },
                Kind::Fresh => ConnectionInfo { state: CLOSED, ..ConnectionInfo::default() },
                Kind::Datagrams => return Err(Error::NotSupported),
            }),
            SocketOptionName::Linger => SocketOption::Linger(description.linger_s),
            SocketOptionName::SendBuffer => SocketOption::SendBuffer(SEND_BYTES as u32),
            SocketOptionName::ReceiveBuffer => SocketOption::ReceiveBuffer(RECEIVE_BYTES as u32),
            SocketOptionName::Listening => {
                SocketOption::Listening(matches!(description.kind, Kind::Listening(_) | Kind::Unheard))
            }
            SocketOptionName::Kind => {
                SocketOption::Kind(if description.is_datagrams() { SocketKind::Datagram } else { SocketKind::Stream })
            }
            SocketOptionName::Peer | SocketOptionName::TellsSender => return Err(Error::NotSupported),
            SocketOptionName::Error => SocketOption::Error(match description.kind {
                Kind::Connected(connection) => self.fault(connection).err(),
                Kind::Datagrams => self.datagram_fault(id).err(),
                Kind::Fresh | Kind::Listening(_) | Kind::Unheard => None,
            }),
        })
    }
}
