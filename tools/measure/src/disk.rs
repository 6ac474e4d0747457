//! A disk behind a file system, at [`FOLDER`]: reads of what is cached and of what nobody has read
//! yet, writes with the sync behind them, syncs, names, and rows of sqlite.
//!
//! What is read cold the host put there ([`COLD`]), a file for each row, each of its bytes is read
//! once. What is written is of the row's own making and gone behind it. A row of 32 processes has
//! so many of its operations under way; its figures are those of one process.

use crate::problem::{During, Problem, Result};
use crate::rows::Setting;
use crate::sample::{SAMPLES, Sample, measured, repeat};
use crate::workers::{self, Kind};
use luks::{SectorBytes, SectorCipher, Segment, VolumeKey};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

/// Where the disk is.
pub const FOLDER: &str = "/data";
/// Files for rows that read what nobody has read yet, by the host, and bytes of each.
pub const COLD: [&str; 5] = ["sequential-4k", "sequential-1m", "random-4k", "random-64k", "random-4k-32"];
/// See [`COLD`].
pub const COLD_BYTES: u64 = 16 << 20;
const BLOCK_BYTES: usize = 4 << 10;
/// Stretches of a row: one that warms up, and the samples.
const STRETCHES: u64 = SAMPLES as u64 + 1;
/// Of each sample, by the size of an operation.
const SMALL: u64 = 64;
const LARGE: u64 = 1;
/// Of a sample with a sync behind each operation.
const SYNCED: u64 = 8;
/// Of a sample with some twenty statements each, and rows of their table.
const TRANSACTIONS: u64 = 2;
const TABLE_ROWS: u64 = 8192;
/// As many as a device has under way.
const PROCESSES: usize = 32;
const HOT_BLOCKS: u64 = 256;
const NAMES: u64 = 32;

// No row reads behind its file's end, and of two processes none the other's blocks.
const _: () = {
    assert!(STRETCHES * SMALL * BLOCK_BYTES as u64 <= COLD_BYTES);
    assert!(STRETCHES * LARGE * (1 << 20) <= COLD_BYTES);
    assert!((COLD_BYTES / BLOCK_BYTES as u64 / PROCESSES as u64).is_power_of_two());
};

/// The order in which `count` places are taken so that no two that follow each other are neighbours
/// (a step that is odd meets each of a power of two).
fn scattered(number: u64, count: u64) -> u64 {
    assert!(count.is_power_of_two());
    (number * 0x9e37_79b1 + 7) & (count - 1)
}

fn cold(name: &str) -> Result<File> {
    File::open(format!("{FOLDER}/{name}")).during("open")
}

/// Reads `operations` pieces in each stretch, each at the place that `place` gives for its number.
fn read(file: &File, bytes: usize, operations: u64, place: impl Fn(u64) -> u64) -> Result<Vec<Sample>> {
    let (mut buffer, mut number) = (vec![0; bytes], 0);
    repeat(operations, || {
        let at = place(number) * bytes as u64;
        number += 1;
        file.read_exact_at(&mut buffer, at).during("pread")
    })
}

/// Blocks of a small file that is read again and again, here and there.
pub fn read_cached(_: &Setting) -> Result<Vec<Sample>> {
    cached("cached", HOT_BLOCKS, 2 * HOT_BLOCKS)
}

/// Blocks of a larger one that was written before.
pub fn read_cached_large(_: &Setting) -> Result<Vec<Sample>> {
    cached("cached-16m", COLD_BYTES / BLOCK_BYTES as u64, 0)
}

/// Reads so many blocks of a new file of `blocks`, and then those that are measured.
fn cached(name: &str, blocks: u64, before: u64) -> Result<Vec<Sample>> {
    let path = format!("{FOLDER}/{name}");
    let file = made(&path)?;
    let mut piece = vec![7; BLOCK_BYTES];
    (0..blocks).try_for_each(|block| file.write_all_at(&piece, block * BLOCK_BYTES as u64)).during("pwrite")?;
    (0..before)
        .try_for_each(|number| file.read_exact_at(&mut piece, scattered(number, blocks) * BLOCK_BYTES as u64))
        .during("pread")?;
    let samples = read(&file, BLOCK_BYTES, SMALL, |number| scattered(number, blocks));
    removed(&path, samples)
}

/// One block behind the other.
pub fn read_sequential(_: &Setting) -> Result<Vec<Sample>> {
    read(&cold(COLD[0])?, BLOCK_BYTES, SMALL, |number| number)
}

/// 1 MiB behind the other.
pub fn read_sequential_large(_: &Setting) -> Result<Vec<Sample>> {
    read(&cold(COLD[1])?, 1 << 20, LARGE, |number| number)
}

/// Blocks here and there.
pub fn read_random(_: &Setting) -> Result<Vec<Sample>> {
    let blocks = COLD_BYTES / BLOCK_BYTES as u64;
    read(&cold(COLD[2])?, BLOCK_BYTES, SMALL, |number| scattered(number, blocks))
}

/// 64 KiB here and there.
pub fn read_random_large(_: &Setting) -> Result<Vec<Sample>> {
    let bytes = 64 << 10;
    read(&cold(COLD[3])?, bytes, COLD_BYTES / bytes as u64 / STRETCHES, |number| {
        scattered(number, COLD_BYTES / bytes as u64)
    })
}

/// Blocks here and there, by many at once.
pub fn read_random_deep(_: &Setting) -> Result<Vec<Sample>> {
    workers::run(
        Kind::Processes,
        PROCESSES,
        |worker| Ok((worker as u64, cold(COLD[4])?)),
        |(worker, file)| {
            let own = COLD_BYTES / BLOCK_BYTES as u64 / PROCESSES as u64;
            read(file, BLOCK_BYTES, own / STRETCHES, |number| worker * own + scattered(number, own))
        },
    )
}

fn made(path: &str) -> Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).during("open")
}

fn removed<T>(path: &str, result: Result<T>) -> Result<T> {
    let result = result?;
    fs::remove_file(path).during("unlink")?;
    Ok(result)
}

/// Writes pieces into a new file, at the places that `place` gives, and syncs behind every
/// `operations` of them; the sync is part of the sample.
fn write(name: &str, bytes: usize, operations: u64, place: impl Fn(u64) -> u64) -> Result<Vec<Sample>> {
    let path = format!("{FOLDER}/{name}");
    let (file, buffer, mut number) = (made(&path)?, vec![7; bytes], 0);
    let mut stretch = || {
        measured(operations, || {
            for _ in 0..operations {
                file.write_all_at(&buffer, place(number) * bytes as u64).during("pwrite")?;
                number += 1;
            }
            file.sync_data().during("fdatasync")
        })
    };
    stretch()?;
    let samples = (0..SAMPLES).map(|_| stretch()).collect();
    removed(&path, samples)
}

/// One block behind the other.
pub fn write_sequential(_: &Setting) -> Result<Vec<Sample>> {
    write("written", BLOCK_BYTES, SMALL, |number| number)
}

/// 1 MiB behind the other.
pub fn write_sequential_large(_: &Setting) -> Result<Vec<Sample>> {
    write("written", 1 << 20, LARGE, |number| number)
}

/// Blocks here and there in a file that grows by them.
pub fn write_random(_: &Setting) -> Result<Vec<Sample>> {
    write("written", BLOCK_BYTES, SMALL, |number| scattered(number, SMALL * STRETCHES))
}

/// A block at the end, and a sync.
pub fn sync(_: &Setting) -> Result<Vec<Sample>> {
    append(0)
}

/// The same by many at once, each with a file of its own.
pub fn sync_deep(_: &Setting) -> Result<Vec<Sample>> {
    workers::run(Kind::Processes, PROCESSES, Ok, |worker| append(*worker))
}

fn append(worker: usize) -> Result<Vec<Sample>> {
    let path = format!("{FOLDER}/appended-{worker}");
    let (mut file, buffer) = (made(&path)?, vec![7; BLOCK_BYTES]);
    let samples = repeat(SYNCED, || {
        file.write_all(&buffer).during("write")?;
        file.sync_all().during("fsync")
    });
    removed(&path, samples)
}

/// A name comes and goes; nobody syncs that.
pub fn create_unlink(_: &Setting) -> Result<Vec<Sample>> {
    let path = format!("{FOLDER}/name");
    repeat(NAMES, || {
        made(&path)?;
        fs::remove_file(&path).during("unlink")
    })
}

/// The cipher of an encrypted disk alone: a block is decrypted in place, by the processor's
/// instructions.
pub fn cipher(_: &Setting) -> Result<Vec<Sample>> {
    let key = VolumeKey::take(&mut std::array::from_fn(|at| at as u8));
    let (offset, bytes, tweak, sector) = (0, BLOCK_BYTES as u64, 0, SectorBytes::B4096);
    let segment = Segment { offset, bytes, sector, tweak, allows_discards: false };
    let cipher = SectorCipher::by_instructions(&key, &segment);
    let cipher = cipher.ok_or_else(|| Problem::Absent("the processor has no AES instructions".into()))?;
    let mut block = vec![7; BLOCK_BYTES];
    repeat(SMALL, || cipher.decrypt(0, &mut block).map_err(|error| Problem::Failed(format!("{error:?}"))))
}

/// A row for each transaction, by one sqlite that is given them one by one.
pub fn sqlite_insert(_: &Setting) -> Result<Vec<Sample>> {
    sqlite("create table t(n integer primary key, p text);", SYNCED, |_| {
        "insert into t(p) values(hex(randomblob(50)));".into()
    })
}

/// The reading and writing transaction of sysbench's OLTP, with its defaults but for a smaller
/// table: ten rows by their number, four ranges of a hundred, two changes, one row deleted and
/// inserted again.
pub fn sqlite_transaction(_: &Setting) -> Result<Vec<Sample>> {
    let columns = "i, i * 7919 % 10000 + 1, printf('%0120d', i * i), printf('%060d', i)";
    let table = format!(
        "create table t(id integer primary key, k integer, c text, pad text); with recursive n(i) as (select 1 union \
         all select i + 1 from n where i < {TABLE_ROWS}) insert into t select {columns} from n; create index k on t(k);"
    );
    sqlite(&table, TRANSACTIONS, |number| {
        let id = |nth: u64| scattered(number * 32 + nth, TABLE_ROWS) + 1;
        let points: String = (0..10).map(|nth| format!("select c from t where id = {};", id(nth))).collect();
        let range = |nth: u64, what: &str, order: &str| {
            let first = id(nth);
            format!("select {what} from t where id between {first} and {}{order};", first + 99)
        };
        let ranges = [
            range(10, "c", ""),
            range(11, "sum(k)", ""),
            range(12, "c", " order by c"),
            range(13, "distinct c", " order by c"),
        ];
        let (counted, written, replaced) = (id(14), id(15), id(16));
        format!(
            "begin;{points}{}update t set k = k + 1 where id = {counted};\
             update t set c = printf('%0120d', {number}) where id = {written};\
             delete from t where id = {replaced};\
             insert into t values({replaced}, {number}, printf('%0120d', {number}), printf('%060d', {number}));commit;",
            ranges.concat()
        )
    })
}

/// Transactions of one sqlite whose database `table` makes, so many in a sample; `question` gives
/// each by its number, on a line.
fn sqlite(table: &str, operations: u64, question: impl Fn(u64) -> String) -> Result<Vec<Sample>> {
    let path = format!("{FOLDER}/db");
    let command =
        Command::new("sqlite3").args(["-batch", "-bail", &path]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut sqlite = match command {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Problem::Absent("sqlite3: there is no such program".into()));
        }
        command => command.during("sqlite3")?,
    };
    let (Some(mut questions), Some(answers)) = (sqlite.stdin.take(), sqlite.stdout.take()) else {
        return Err(Problem::Failed("sqlite3 has no pipes".into()));
    };
    let mut answers = BufReader::new(answers);
    let mut answer = String::new();
    let mut ask = |question: &str| -> Result<()> {
        writeln!(questions, "{question} select 'done';").during("write")?;
        loop {
            answer.clear();
            if answers.read_line(&mut answer).during("read")? == 0 {
                return Err(Problem::Failed("sqlite3 refuses a statement".into()));
            }
            if answer == "done\n" {
                return Ok(());
            }
        }
    };
    ask(table)?;
    let mut number = 0;
    let samples = repeat(operations, || {
        number += 1;
        ask(&question(number))
    });
    drop(questions);
    sqlite.wait().during("sqlite3")?;
    removed(&path, samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_place_is_taken_once() {
        for count in [1, 8, 4096] {
            let places: BTreeSet<u64> = (0..count).map(|number| scattered(number, count)).collect();
            assert_eq!(places.len() as u64, count);
        }
        assert!((0..4000).all(|number| scattered(number, 4096).abs_diff(scattered(number + 1, 4096)) > 1));
    }
}
