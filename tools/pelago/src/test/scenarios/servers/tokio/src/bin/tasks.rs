//! Tasks that meet by channels, wait for timers and block, on tokio's runtime of one thread.

use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time;

fn main() -> std::io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(meet());
    Ok(())
}

async fn meet() {
    let (sender, mut sums) = mpsc::channel(4);
    for worker in 0..8u64 {
        let sender = sender.clone();
        tokio::spawn(async move {
            for part in 0..100 {
                let sum = tokio::task::spawn_blocking(move || {
                    (0..100).map(|at| (worker * 100 + part) * 100 + at).sum::<u64>()
                });
                let _ = sender.send(sum.await.unwrap_or_default()).await;
            }
        });
    }
    drop(sender);
    let mut total = 0;
    while let Some(sum) = sums.recv().await {
        total += sum;
    }
    let (start, mut ticks, mut every) = (Instant::now(), 0, time::interval(Duration::from_millis(20)));
    every.tick().await;
    while ticks < 10 {
        every.tick().await;
        ticks += 1;
    }
    let whole = start.elapsed() >= Duration::from_millis(200);
    let blocked = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_secs(1)));
    let late = time::timeout(Duration::from_millis(50), blocked).await.is_err();
    println!("sum {total} ticks {ticks} {whole} late {late}");
}
