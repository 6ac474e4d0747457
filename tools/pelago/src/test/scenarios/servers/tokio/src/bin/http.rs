//! Serves `/served` by HTTP on tokio's runtime of several threads, or of one if the argument says
//! `single`; files are read by its pool. Further arguments say how many pairs of sockets and how
//! many pipes it waits for meanwhile in which nothing comes.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Builder;

fn main() -> std::io::Result<()> {
    let word = |place| std::env::args().nth(place).unwrap_or_default();
    let number = |place| word(place).parse().unwrap_or(0);
    let (is_single, idle) = (word(1) == "single", [number(2), number(3)]);
    let mut builder = if is_single { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    // One of a single thread has no workers, whatever is said of them.
    builder.worker_threads(2).enable_all().build()?.block_on(listen(idle))
}

async fn listen([sockets, pipes]: [usize; 2]) -> std::io::Result<()> {
    for _ in 0..sockets {
        let (mut one, other) = UnixStream::pair()?;
        tokio::spawn(async move {
            let came = one.read_u8().await;
            panic!("something came: {came:?} {other:?}");
        });
    }
    for _ in 0..pipes {
        let (sender, mut receiver) = pipe::pipe()?;
        tokio::spawn(async move {
            let came = receiver.read_u8().await;
            panic!("something came: {came:?} {sender:?}");
        });
    }
    let listener = TcpListener::bind("0.0.0.0:8080").await?;
    loop {
        let (client, _) = listener.accept().await?;
        tokio::spawn(serve(client));
    }
}

/// Answers one client until it goes, or has asked by HTTP/1.0.
async fn serve(client: TcpStream) -> std::io::Result<()> {
    let (from, mut to) = client.into_split();
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        while lines.next_line().await?.is_some_and(|header| !header.is_empty()) {}
        let path = line.split(' ').nth(1).unwrap_or_default();
        let body = tokio::fs::read(format!("/served{path}")).await?;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        to.write_all(&[head.as_bytes(), &body].concat()).await?;
        if line.ends_with("HTTP/1.0") {
            break;
        }
    }
    Ok(())
}
