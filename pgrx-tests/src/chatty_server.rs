//! A server that sends more than it is asked for: a TCP link that forwards whole messages, and sends messages
//! of its own before some of them.

use crate::Result;
use crate::cluster::{DATABASE, MOVER};
use crate::server::Server;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Sends something to the client. An error ends the session.
type ExtraMessages = Arc<dyn Fn(&mut TcpStream) -> io::Result<()> + Send + Sync>;
/// The kind of server message before which something is sent, and what is sent.
type Trigger = Arc<Mutex<Option<(u8, ExtraMessages)>>>;

pub struct ChattyServer {
    port: u16,
    trigger: Trigger,
}

/// Builds a message of the protocol.
pub fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body: Vec<u8> = parts.concat();
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&[kind][..], &length.to_be_bytes(), &body].concat()
}

impl ChattyServer {
    /// Starts the link. It sends nothing of its own at first.
    pub fn before(server: &Server) -> Result<ChattyServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (port, trigger) = (listener.local_addr()?.port(), Trigger::default());
        let upstream = server.socket_dir().join(".s.PGSQL.5432");
        let its_trigger = trigger.clone();
        // The thread runs until the test program ends.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client that could not be connected sees its connection closed.
                let _ = accept(client, &upstream, &its_trigger);
            }
        });
        Ok(ChattyServer { port, trigger })
    }

    /// Returns a connection string that leads through the link.
    pub fn conninfo(&self) -> String {
        format!(
            "host=127.0.0.1 port={} dbname={DATABASE} user={MOVER} sslmode=disable gssencmode=disable",
            self.port
        )
    }

    /// From now on, sends this before each message of a kind.
    pub fn says(&self, before: u8, says: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static) {
        *self.trigger.lock().unwrap_or_else(PoisonError::into_inner) = Some((before, Arc::new(says)));
    }
}

fn accept(client: TcpStream, upstream: &Path, trigger: &Trigger) -> io::Result<()> {
    let server = UnixStream::connect(upstream)?;
    let (mut questions, mut asked) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut questions, &mut asked);
        let _ = asked.shutdown(Shutdown::Both);
    });
    let trigger = trigger.clone();
    thread::spawn(move || {
        let (mut from, mut to) = (server, client);
        while answer(&mut from, &mut to, &trigger).is_ok() {}
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
    Ok(())
}

/// Forwards one message.
fn answer(from: &mut UnixStream, to: &mut TcpStream, trigger: &Trigger) -> io::Result<()> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]).saturating_sub(4);
    let mut body = vec![0; usize::try_from(length).unwrap_or(0)];
    from.read_exact(&mut body)?;
    let says = trigger.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some((_, says)) = says.filter(|(kind, _)| *kind == head[0]) {
        says(to)?;
    }
    to.write_all(&head)?;
    to.write_all(&body)
}
