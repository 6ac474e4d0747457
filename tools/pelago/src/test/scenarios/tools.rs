//! Tier 3: shells, languages, a compiler and what one works with, unmodified, from root file
//! systems of Debian's packages, and programs of ours on the runtimes of other languages, by
//! running this very tool as a person does.

use super::cli::Running;
use crate::image::built::Origin;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, ensure};

pub struct Case {
    pub name: &'static str,
    pub origin: Origin,
    pub cpus: u32,
    /// The program, if it is in a root, and its arguments.
    pub words: &'static [&'static str],
    /// What it says last.
    pub says: &'static str,
}

/// Options of a run that a case needs more than others.
pub const LARGE_MEMORY: &[&str] = &["--memory", "1536M"];

const BASH: &str = r#"set -euo pipefail; shopt -s lastpipe
    coproc upper { tr a-z A-Z; }; echo told >&"${upper[1]}"; exec {upper[1]}>&-; read -r line <&"${upper[0]}"
    diff <(seq 3) <(seq 3) && seq 9999 | sort -rn | head -n 1 | read -r most || true
    trap 'heard=yes' USR1; kill -USR1 $$; (exit 3) || status=$?
    found=$(find /etc -name 'pass*' | sort | xargs grep -c ^root: | sed s/1/one/)
    echo "$line $most $heard $status $found""#;
const PERL: &str = r#"use strict; use IO::Socket::INET; use POSIX ":sys_wait_h"; use File::Temp "tempfile";
    my $server = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die $!;
    my $child = fork // die $!;
    if (!$child) { print {IO::Socket::INET->new("127.0.0.1:" . $server->sockport)} "from a child\n"; exit 7 }
    my $line = $server->accept->getline; waitpid $child, 0; my $status = WEXITSTATUS($?); chomp $line;
    my ($file, $name) = tempfile(); print $file "x" x 99999; close $file;
    open my $list, "-|", "wc -c < $name" or die $!; my $bytes = <$list> + 0;
    $SIG{ALRM} = sub { print "$line $status $bytes\n"; exit }; alarm 1; sleep 9"#;
const MAWK: &str = r#"BEGIN { while (i++ < 5) s += i * i; "echo told" | getline d; print toupper(d) > "/tmp/o"
    close("/tmp/o"); getline x < "/tmp/o"; printf "%d %s ", s, x; fflush(); system("echo beside") }"#;
const SQLITE: &str = "create table t(a integer primary key, b text); insert into t(b) values ('x'), ('y'); begin; \
    update t set b = b || 'z'; commit; vacuum; pragma integrity_check; select count(*), group_concat(b) from t;";
const TAR: &str = "cd /tmp; mkdir -p a/b o; echo told >a/b/c; ln -s c a/b/l; ln a/b/c a/b/h; chmod 640 a/b/c; \
    touch -d 2001-02-03 a/b/c; tar czpf t.tgz a && tar xzpf t.tgz -C o && tar dzf t.tgz && diff -r a o/a && \
    stat -c '%a %h %y' o/a/b/c | cut -c -16 && readlink o/a/b/l";
const GIT: &str = "set -e; export HOME=/tmp; cd /tmp; git config --global user.email a@b; \
    git config --global user.name a; git init -q r; cd r; echo one >f; git add f; git commit -qm first; \
    echo two >>f; git commit -qam second; git gc -q; cd ..; git clone -q file:///tmp/r c; cd c; \
    git checkout -qb side; echo three >>f; git commit -qam third; git push -q origin side; git fsck --strict; \
    cd ../r; git log --format=%s side | paste -sd ' '; git diff HEAD~1 side -- f | tail -n 1";
const GCC: &str = r#"cd /tmp; echo 'int told(void) { return 0; }' >b.c
    printf '#include <stdio.h>\nint told(void);\nint main(void) { puts("compiled here"); return told(); }\n' >a.c
    printf 'hello: a.o b.o\n\tgcc -o $@ $^\n%%.o: %%.c\n\tgcc -O2 -c -o $@ $<\n' >Makefile; make -j2 >&2 && ./hello"#;
const PHP: &str = r#"$s = stream_socket_server("tcp://127.0.0.1:99"); $c = stream_socket_client("tcp://127.0.0.1:99");
    fwrite($c, json_encode(["a" => 1]) . "\n"); $got = trim(fgets(stream_socket_accept($s)));
    $end = proc_close(proc_open("exit 3", [], $pipes)); file_put_contents("/tmp/f", "x");
    echo $got, " $end ", preg_replace("/x/", "y", file_get_contents("/tmp/f")), " ", fgets(popen("echo told", "r"));"#;
const RUBY: &str = r#"require "socket"; require "json"; require "timeout"
    server = TCPServer.new("127.0.0.1", 99); Thread.new { client = server.accept; client.puts "served"; client.close }
    got = TCPSocket.new("127.0.0.1", 99).read.strip; from, to = IO.pipe
    Process.wait fork { from.close; to.puts JSON.dump([1]); exit!(4) }; status = $?.exitstatus; to.close
    late = begin Timeout.timeout(0.2) { sleep 9 } rescue Timeout::Error; "late" end
    puts [got, from.read.strip, status, late, `echo told;`].join(" ")"#;

/// A log that is written back, rolled back, and emptied.
const WAL: &str = "pragma journal_mode=wal; create table t(a integer primary key, b text); \
    insert into t(b) select hex(randomblob(100)) from generate_series(1, 2000); \
    begin; update t set b = 'x' || b; rollback; update t set b = 'y' || a where a % 2; \
    pragma wal_checkpoint(truncate); delete from t where a > 1000; \
    pragma integrity_check; select count(*), sum(b = 'y' || a) from t;";
/// Two programs that write to one database: each row is there, or its writer was told that it is
/// not (decision 79 gives the memory that they would share to one of them).
const WAL_TWO: &str = r#"cd /tmp; sqlite3 db 'pragma journal_mode=wal; create table t(x)'
    rows() { echo 'pragma busy_timeout=20000;'; seq -f "insert into t values($1%03g);" 360; }
    rows 1 | sqlite3 db 2>e1 >/dev/null & rows 2 | sqlite3 db 2>e2 >/dev/null; wait
    rows=$(sqlite3 db 'select count(distinct x) from t'); refused=$(cat e1 e2 | wc -l); echo $rows rows, $refused refused
    [ $rows -ge 360 ] && [ $((rows + refused)) = 720 ] && echo "none lost, $(sqlite3 db 'pragma integrity_check')""#;

const TOOLS: Origin = Origin::Root("tools");
const CASES: [Case; 11] = [
    Case { name: "bash", origin: TOOLS, cpus: 1, words: &["bash", "-c", BASH], says: "TOLD 9999 yes 3 one" },
    Case { name: "perl", origin: TOOLS, cpus: 2, words: &["perl", "-e", PERL], says: "from a child 7 99999" },
    Case { name: "mawk", origin: TOOLS, cpus: 1, words: &["mawk", MAWK], says: "55 TOLD beside" },
    Case { name: "sqlite3", origin: TOOLS, cpus: 2, words: &["sqlite3", "/tmp/db", SQLITE], says: "2|xz,yz" },
    Case { name: "sqlite3-wal", origin: TOOLS, cpus: 1, words: &["sqlite3", "/tmp/db", WAL], says: "ok\n1000|500" },
    Case { name: "sqlite3-wal-two", origin: TOOLS, cpus: 2, words: &["bash", "-c", WAL_TWO], says: "none lost, ok" },
    Case { name: "tar", origin: TOOLS, cpus: 1, words: &["sh", "-c", TAR], says: "640 2 2001-02-03\nc" },
    Case { name: "git", origin: TOOLS, cpus: 2, words: &["bash", "-c", GIT], says: "third second first\n+three" },
    Case {
        name: "python-threading",
        origin: Origin::Root("gunicorn"),
        cpus: 1,
        words: &["python3", "-c", include_str!("servers/locks.py")],
        says: "8000 8 499500 False True False True 1",
    },
    Case { name: "go", origin: Origin::Go("channels"), cpus: 2, words: &[], says: "sum 50005000 ticks 10 true" },
    Case {
        name: "tokio",
        origin: Origin::Tokio("tasks"),
        cpus: 1,
        words: &[],
        says: "sum 3199960000 ticks 10 true late true",
    },
];
const NIGHTLY: [Case; 3] = [
    Case { name: "gcc", origin: Origin::Root("gcc"), cpus: 2, words: &["sh", "-c", GCC], says: "compiled here" },
    Case {
        name: "php",
        origin: Origin::Root("php"),
        cpus: 1,
        words: &["php8.2", "-r", PHP],
        says: r#"{"a":1} 3 y told"#,
    },
    Case {
        name: "ruby",
        origin: Origin::Root("ruby"),
        cpus: 2,
        words: &["ruby", "-e", RUBY],
        says: "served [1] 4 late told",
    },
];

pub fn scenarios() -> Vec<Scenario> {
    let of = |case: &'static Case| Scenario::shared(3, format!("tools/{}", case.name), |_| run(case));
    let nightly = NIGHTLY.iter().map(|case| Scenario { nightly: true, ..of(case) });
    CASES.iter().map(of).chain(nightly).collect()
}

/// Says what it should, last, and ends well.
pub fn run(case: &Case) -> Result<()> {
    run_with(case, &[])
}

/// The same with more options.
pub fn run_with(case: &Case, options: &[&str]) -> Result<()> {
    let (origin, cpus) = (case.origin.words()?, case.cpus.to_string());
    let origin: Vec<&str> = origin.iter().map(String::as_str).collect();
    let usual = ["--accel", "tcg", "-q", "--cpus", &cpus];
    let mut run = Running::start(&[&usual, options, &origin[..], case.words].concat(), &[])?;
    let status = run.finish().with_context(|| format!("{} does not end", case.name))?;
    let said = run.seen.join("\n");
    ensure!(status.success() && said.ends_with(case.says), "{status}, and it says:\n{said}");
    Ok(())
}
