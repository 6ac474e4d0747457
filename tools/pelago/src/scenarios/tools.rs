//! Tier 3: shells, languages, a compiler and what one works with, unmodified, from root file
//! systems of Debian's packages, by running this very tool as a person does.

use super::door::Running;
use crate::place;
use crate::scenario::{Scenario, Skip};
use anyhow::{Context, Result, bail, ensure};

struct Case {
    name: &'static str,
    /// The root that it is in.
    root: &'static str,
    words: &'static [&'static str],
    /// What it says last.
    says: &'static str,
}

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

const CASES: [Case; 6] = [
    Case { name: "bash", root: "tools", words: &["bash", "-c", BASH], says: "TOLD 9999 yes 3 one" },
    Case { name: "perl", root: "tools", words: &["perl", "-e", PERL], says: "from a child 7 99999" },
    Case { name: "mawk", root: "tools", words: &["mawk", MAWK], says: "55 TOLD beside" },
    Case { name: "sqlite3", root: "tools", words: &["sqlite3", "/tmp/db", SQLITE], says: "2|xz,yz" },
    Case { name: "tar", root: "tools", words: &["sh", "-c", TAR], says: "640 2 2001-02-03\nc" },
    Case { name: "git", root: "tools", words: &["bash", "-c", GIT], says: "third second first\n+three" },
];
const NIGHTLY: [Case; 3] = [
    Case { name: "gcc", root: "gcc", words: &["sh", "-c", GCC], says: "compiled here" },
    Case { name: "php", root: "php", words: &["php8.2", "-r", PHP], says: r#"{"a":1} 3 y told"# },
    Case { name: "ruby", root: "ruby", words: &["ruby", "-e", RUBY], says: "served [1] 4 late told" },
];

pub fn scenarios() -> Vec<Scenario> {
    let of = |case: &'static Case| Scenario::shared(3, format!("tools/{}", case.name), |_| run(case));
    let nightly = NIGHTLY.iter().map(|case| Scenario { nightly: true, ..of(case) });
    CASES.iter().map(of).chain(nightly).collect()
}

/// Says what it should, last, and ends well.
fn run(case: &Case) -> Result<()> {
    let root = place::test_root(case.root);
    if !root.is_dir() {
        bail!(Skip::Root(case.root));
    }
    let root = root.display().to_string();
    let mut run = Running::start(&[&["--accel", "tcg", "-q", "--rootfs", &root], case.words].concat(), &[])?;
    let status = run.finish().with_context(|| format!("{} does not end", case.name))?;
    let said = run.seen.join("\n");
    ensure!(status.success() && said.ends_with(case.says), "{status}, and it says:\n{said}");
    Ok(())
}
