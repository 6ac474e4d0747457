# shellcheck shell=sh
# Makes the machine ready. Sourced by ./pelago, which sets `root` (the checkout),
# `assume_yes` and `asked` (its arguments).
#
# Promises:
# - What is present is used; what is missing is installed by the system's package manager or
#   unpacked into the cache, never both.
# - Root is used without a question only where we already are root, or with CI=true or --yes. Debian
#   packages that would remove one of the machine's own packages are unpacked into the cache instead
#   of being installed.
# - Every step is announced before it starts; every failure says what to do. Details are in
#   $PELAGO_CACHE/log.
# - The compiler's sysroot is moved into place when complete, so an interrupted run leaves nothing
#   half made.

oldest_rust_minor=90
# rust-toolchain.toml is the one source of both; it is written for one value a line.
rust_channel=$(sed -n 's/^channel = "\(.*\)"$/\1/p' "$root/rust-toolchain.toml")
bare_target=$(sed -n 's/^targets = \["\(.*\)"\]$/\1/p' "$root/rust-toolchain.toml")
host_target=x86_64-unknown-linux-gnu

step() { printf 'pelago: %s\n' "$1" >&2; }
fail() {
    printf 'pelago: %s; %s\n' "$1" "$2" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Runs "$@" silently with its output in the log file $1; on failure shows the log's end and returns
# the status.
logged() {
    log="$PELAGO_CACHE/log/$1.log"
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        return 0
    else
        status=$?
        tail -n 15 "$log" >&2
        step "that failed; the whole log is in $log"
        return "$status"
    fi
}

choose_cache() {
    if [ -z "${PELAGO_CACHE:-}" ]; then
        base=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
        PELAGO_CACHE=${base:+$base/pelago}
        # A service user may have no home, or one it cannot write: then the checkout holds the
        # cache.
        if [ -z "$PELAGO_CACHE" ] || ! mkdir -p "$PELAGO_CACHE" 2>/dev/null; then
            PELAGO_CACHE="$root/.toolchain"
        fi
    fi
    export PELAGO_CACHE
    mkdir -p "$PELAGO_CACHE/log" "$PELAGO_CACHE/bin" 2>/dev/null \
        || fail "cannot write the cache folder $PELAGO_CACHE" "set PELAGO_CACHE to a folder you can write"
    unpacked="$PELAGO_CACHE/debian"
    unpacked_libraries="$unpacked/usr/lib/x86_64-linux-gnu:$unpacked/lib/x86_64-linux-gnu"
    own_rust="$PELAGO_CACHE/rust"
}

# ---- Debian packages

require_debian() {
    have apt-get && have dpkg && return 0
    fail "$1 is missing, and this is not a Debian-like system" "$2"
}

# Sets `root_command` to how a command is run as root ("" if we are root), or returns 1 where root
# must not be used.
find_root() {
    [ -n "${root_known:-}" ] && return "$root_refused"
    root_known=yes root_refused=0 root_command=
    [ "$(id -u)" = 0 ] && return 0
    root_refused=1
    have sudo || return 1
    if [ "$assume_yes" = true ]; then
        sudo -n true 2>/dev/null || return 1
    else
        [ -t 0 ] || return 1
        printf 'pelago: these Debian packages are missing: %s\npelago: install them with sudo? [y/N] ' "$1" >&2
        read -r answer
        case "$answer" in y* | Y*) ;; *) return 1 ;; esac
    fi
    root_command=sudo
    root_refused=0
}

refresh_package_lists() {
    # A fresh container image has no lists at all; a machine with old lists is refreshed only when a
    # package is not found.
    apt-get install --simulate --no-install-recommends "$@" >/dev/null 2>&1 && return 0
    find_root "$*" || return 0
    step "Refreshing the package lists"
    # shellcheck disable=SC2086  # root_command is empty or one word
    logged apt-update $root_command apt-get update || true
}

# install_packages WHAT PACKAGE...: as root by apt-get. Returns 1 where root may not be used or
# packages of the machine would go.
install_packages() {
    what=$1
    shift
    find_root "$*" || return 1
    refresh_package_lists "$@"
    if apt-get install --simulate --no-install-recommends "$@" 2>/dev/null | grep -q '^Remv '; then
        return 1
    fi
    step "Installing $what: $*"
    # shellcheck disable=SC2086
    logged apt-install $root_command env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends "$@"
}

# unpack_packages WHAT PACKAGE...: the packages and what they need that is not installed, into the
# cache, without root.
unpack_packages() {
    what=$1
    shift
    step "Unpacking $what into $unpacked: $*"
    names=$(apt-get install --print-uris --yes --no-install-recommends -o Debug::NoLocking=1 "$@" 2>/dev/null \
        | sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p")
    mkdir -p "$PELAGO_CACHE/packages" "$unpacked"
    # shellcheck disable=SC2086  # a list of package names
    (cd "$PELAGO_CACHE/packages" && logged apt-download apt-get download ${names:-$*}) || return 1
    for package in "$PELAGO_CACHE"/packages/*.deb; do
        logged dpkg-unpack dpkg -x "$package" "$unpacked" || return 1
    done
    rm -rf "$PELAGO_CACHE/packages"
}

# ---- Rust

# True if the compiler in PATH is new enough and has the core library of the bare target.
rust_can_build() {
    have cargo && have rustc || return 1
    minor=$(rustc --version 2>/dev/null | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p')
    [ "${minor:-0}" -ge "$oldest_rust_minor" ] || return 1
    [ -d "$(rustc --print sysroot)/lib/rustlib/$bare_target/lib" ]
}

# Sets RUSTUP_TOOLCHAIN to one that is installed and can build: that of rust-toolchain.toml, else
# the user's default. rustup by itself would download the former where the latter will do. It may
# not install any on the way, either: what is missing is said first.
choose_toolchain() {
    have rustup && [ -z "${RUSTUP_TOOLCHAIN:-}" ] || return 0
    RUSTUP_AUTO_INSTALL=0
    export RUSTUP_AUTO_INSTALL
    installed=$(rustup toolchain list 2>/dev/null) || return 0
    default=$(printf '%s\n' "$installed" | sed -n 's/ (.*default.*//p')
    for toolchain in "$rust_channel-$host_target" $default; do
        printf '%s\n' "$installed" | grep -q "^$toolchain\( \|\$\)" || continue
        chosen=${chosen:-$toolchain}
        if RUSTUP_TOOLCHAIN=$toolchain rust_can_build; then
            chosen=$toolchain
            break
        fi
    done
    [ -z "${chosen:-}" ] && return 0
    RUSTUP_TOOLCHAIN=$chosen
    export RUSTUP_TOOLCHAIN
}

ready_compiler() {
    if ! have cc; then
        require_debian "a C linker (cc)" "install gcc and the C library's development files"
        install_packages "the host linker" gcc libc6-dev \
            || fail "there is no C linker (cc), which Rust needs for the host tool" \
                "run as root: apt-get install gcc libc6-dev"
    fi
    choose_toolchain
    rust_can_build && return 0
    if [ -x "$own_rust/bin/rustc" ]; then
        PATH="$own_rust/bin:$PATH"
        export PATH
        unset RUSTC RUSTUP_TOOLCHAIN
        rust_can_build && return 0
        step "The compiler in $own_rust does not run any more; making it again"
        rm -rf "$own_rust"
    fi
    if have rustup; then
        step "Adding the bare target with rustup"
        if logged rustup timeout 60 rustup target add "$bare_target" && rust_can_build; then
            return 0
        fi
        step "rustup cannot provide it here; using Debian's compiler"
    fi
    debian_rust
}

debian_rust() {
    require_debian "Rust for $bare_target" "install rustup (https://rustup.rs) and run: rustup target add $bare_target"
    # cargo downloads over TLS, and the smallest Debian trusts nobody.
    set -- rustc-web cargo-web rust-web-src rustfmt-web rust-web-clippy lld-22 ca-certificates
    if install_packages "Rust and lld" "$@"; then
        prefix=
    elif unpack_packages "Rust and lld" "$@"; then
        prefix=$unpacked
    else
        fail "Debian's Rust packages are not to be had" \
            "check the network and that bookworm-security is in /etc/apt, run apt-get update; or install rustup's target $bare_target"
    fi
    build_sysroot "$prefix"
    # The guest's crates were compiled against another core library; cargo does not notice.
    rm -rf "$root/target"
    PATH="$own_rust/bin:$PATH"
    export PATH
    unset RUSTC RUSTUP_TOOLCHAIN
    rust_can_build || fail "Debian's compiler was set up but does not work" "remove $own_rust and try again"
}

# Builds core and alloc for the bare target from Debian's sources, and wrappers that give the
# compiler a sysroot with both targets.
build_sysroot() {
    prefix=$1
    libraries=
    [ -n "$prefix" ] && libraries=$unpacked_libraries
    rustlib="$prefix/usr/lib/rustlib"
    making="$own_rust.$$"
    rm -rf "$making"
    mkdir -p "$making/seed/src" "$making/seed/.cargo" "$making/bin" \
        "$making/lib/rustlib/$bare_target/lib" "$making/lib/rustlib/$host_target/bin"
    printf '[package]\nname = "seed"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >"$making/seed/Cargo.toml"
    printf '#![no_std]\n' >"$making/seed/src/lib.rs"
    # The few crates that the library needs come with its source package: no download, whatever the
    # registry.
    printf '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "%s"\n' \
        "$rustlib/src/rust/library/vendor" >"$making/seed/.cargo/config.toml"
    step "Building the core library for $bare_target (about a minute, once)"
    (cd "$making/seed" && logged sysroot env LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" RUSTC_BOOTSTRAP=1 \
        RUSTC="$prefix/usr/bin/rustc" CARGO_TARGET_DIR="$making/seed/target" \
        "$prefix/usr/bin/cargo" build --release -Zbuild-std=core,alloc,compiler_builtins --target "$bare_target") \
        || fail "the core library did not build" "see the messages above; at least 1 GB of disk is needed in $PELAGO_CACHE"
    for library in core alloc compiler_builtins; do
        cp "$making/seed/target/$bare_target/release/deps/lib$library"-*.rlib "$making/lib/rustlib/$bare_target/lib/"
    done
    rm -rf "$making/seed"
    ln -s "$rustlib/$host_target/lib" "$making/lib/rustlib/$host_target/lib"
    ln -s "$rustlib/src" "$making/lib/rustlib/src"
    ln -s "$prefix/usr/bin/lld-22" "$making/lib/rustlib/$host_target/bin/rust-lld"
    for program in rustc rustdoc; do
        write_wrapper "$making/bin/$program" "$prefix/usr/bin/$program" "--sysroot $own_rust"
    done
    for program in cargo cargo-fmt cargo-clippy clippy-driver rustfmt; do
        write_wrapper "$making/bin/$program" "$prefix/usr/bin/$program" ""
    done
    write_wrapper "$making/bin/rust-lld" "$prefix/usr/bin/lld-22" ""
    mv "$making" "$own_rust"
}

# write_wrapper FILE PROGRAM ARGUMENTS. SYSROOT is for clippy-driver: cargo-clippy calls it from its
# own folder and not by PATH.
write_wrapper() {
    {
        printf '#!/bin/sh\nexport SYSROOT="%s"\n' "$own_rust"
        [ -n "$libraries" ] && printf 'export LD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\n' "$libraries"
        printf 'exec "%s" %s "$@"\n' "$2" "$3"
    } >"$1"
    chmod +x "$1"
}

# ---- The emulator and what the tests use

ready_emulator() {
    PATH="$PATH:$PELAGO_CACHE/bin:/usr/sbin:/sbin"
    export PATH
    missing=
    have qemu-system-x86_64 || missing="$missing qemu-system-x86"
    have curl || missing="$missing curl"
    have ip || missing="$missing iproute2"
    if [ -n "$missing" ]; then
        require_debian "one of these programs:$missing" "install them with your package manager"
        # shellcheck disable=SC2086  # a list of package names
        install_packages "the emulator and test programs" $missing || emulator_without_root
    fi
    ready_helper passt passt "ports are led to the guest by the emulator's own network, slowly for many clients at once"
    ready_busybox
}

# ready_helper PROGRAM PACKAGE WITHOUT: a program that the tool can do without. It is asked for once
# in the life of the cache, and the set-up goes on whether it is had or not.
ready_helper() {
    have "$1" && return 0
    asked="$PELAGO_CACHE/asked-for-$2"
    [ -e "$asked" ] && return 0
    have apt-get && have dpkg || return 0
    : >"$asked"
    if install_packages "a helper" "$2" && have "$1"; then return 0; fi
    if unpack_packages "a helper" "$2" && "$unpacked/usr/bin/$1" --version >/dev/null 2>&1; then
        ln -sf "$unpacked/usr/bin/$1" "$PELAGO_CACHE/bin/$1"
    else
        step "there is no $1: $3; to have it: apt-get install $2"
    fi
}

ready_tests() {
    ready_helper gdb gdb "tests that use it will say so"
    ready_helper mkfs.ext4 e2fsprogs "tests of disks will say so"
    ready_helper cryptsetup cryptsetup-bin "tests of encrypted disks will say so"
    ready_roots
    ready_redis_source
}

emulator_without_root() {
    if ! have qemu-system-x86_64; then
        unpack_packages "the emulator" qemu-system-x86 \
            || fail "QEMU (qemu-system-x86_64) is missing" "run as root: apt-get install qemu-system-x86"
        {
            printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s"\n' "$unpacked_libraries"
            printf 'exec "%s" -L "%s" -L "%s" "$@"\n' "$unpacked/usr/bin/qemu-system-x86_64" \
                "$unpacked/usr/share/qemu" "$unpacked/usr/share/seabios"
        } >"$PELAGO_CACHE/bin/qemu-system-x86_64"
        chmod +x "$PELAGO_CACHE/bin/qemu-system-x86_64"
    fi
    have curl || step "curl is missing: tests that use it will say so"
    have ip || step "iproute2 is missing: tests over a tap will say so"
}

# The guest's busybox must be static. The host's own is used if it is; otherwise Debian's is
# unpacked beside, not installed, since busybox-static would replace the host's busybox.
ready_busybox() {
    if [ -z "${PELAGO_BUSYBOX:-}" ]; then
        PELAGO_BUSYBOX="$PELAGO_CACHE/bin/busybox"
        if [ ! -x "$PELAGO_BUSYBOX" ]; then
            if have busybox && is_static "$(command -v busybox)"; then
                PELAGO_BUSYBOX=$(command -v busybox)
            else
                fetch_busybox
            fi
        fi
    fi
    export PELAGO_BUSYBOX
}

# A static program names no interpreter; the dynamic loader's name stands in the first page of every
# other one.
is_static() { ! head -c 4096 "$1" | LC_ALL=C grep -q 'ld-linux\|ld-musl'; }

fetch_busybox() {
    have apt-get && have dpkg || return 0
    step "Fetching Debian's static busybox into $PELAGO_CACHE"
    refresh_package_lists busybox-static
    folder="$PELAGO_CACHE/busybox.$$"
    mkdir -p "$folder"
    if (cd "$folder" && logged busybox apt-get download busybox-static && logged busybox dpkg -x ./busybox-static_*.deb .); then
        cp "$folder/bin/busybox" "$PELAGO_BUSYBOX.$$" && mv "$PELAGO_BUSYBOX.$$" "$PELAGO_BUSYBOX"
    else
        step "there is no static busybox: 'run busybox' and the tests that use it will say so"
    fi
    rm -rf "$folder"
}

# ---- Roots of the programs that tests run

# NAME PACKAGE...: each root has these packages of Debian and all that they need, unpacked as in a
# container image and never installed. A changed line makes its root anew, and another
# roots_version all of them.
roots_version=1
test_roots='redis redis-server
memcached memcached
nginx nginx-light
web lighttpd haproxy
gunicorn gunicorn
tools bash coreutils diffutils dropbear-bin findutils git grep gzip mawk perl sed sqlite3 tar'
# Those of nightly scenarios, which have their names, or theirs before a number: made when they are
# asked for.
nightly_roots='node nodejs
python coreutils netbase python3 libpython3.11-testsuite
gcc make gcc libc6-dev coreutils
java openjdk-17-jre-headless
php php-cli
mariadb mariadb-server-core mariadb-client-core coreutils grep sed util-linux
postgres postgresql-15 coreutils grep util-linux
ruby ruby'
# In every root. usr-is-merged stands for a script that has to run and needs all of perl.
roots_base='base-files base-passwd dash usr-is-merged'

roots_wanted() {
    printf '%s\n' "$test_roots"
    printf '%s\n' "$nightly_roots" | while read -r name packages; do
        case " $asked " in
            *" --nightly "* | *"/$name "* | *"/$name/"*) printf '%s\n' "$name $packages" ;;
            # What is measured of them.
            *" bench "*) [ "$name" != node ] || printf '%s\n' "$name $packages" ;;
        esac
    done
}

ready_roots() {
    roots="$PELAGO_CACHE/roots"
    missing_roots=$(roots_wanted | while read -r name packages; do
        [ "$(cat "$roots/$name/.made-of" 2>/dev/null)" = "$roots_version $packages" ] || printf '%s\n' "$name $packages"
    done)
    [ -n "$missing_roots" ] || return 0
    have apt-get && have dpkg-deb || return 0
    mkdir -p "$roots"
    begin_apart
    make_roots || step "roots are missing: tests that use them will say so"
    rm -rf "$apart"
}

# Makes the folders of `apt_apart`, in `$apart`.
begin_apart() {
    apart="$PELAGO_CACHE/apart.$$"
    apart_lists=
    mkdir -p "$apart/cache/archives/partial" "$apart/none/partial" "$apart/lists/partial"
    : >"$apart/status"
}

# A machine's lists may be old or missing; then ours are fetched, beside them.
fetch_lists() {
    step "Fetching Debian's package lists"
    apart_lists="-o Dir::State::lists=$apart/lists"
    logged package-lists apt_apart update
}

# apt as on a machine where nothing is installed, so that it names and fetches all that a package
# needs. It needs no root and changes nothing of this machine.
apt_apart() {
    # shellcheck disable=SC2086  # apart_lists is empty or an option of two words
    apt-get -o Dir::State::status="$apart/status" -o Dir::Cache="$apart/cache" $apart_lists \
        -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o APT::Install-Recommends=false --yes "$@"
}

# The files of packages and of what they need, one a line, whether they were fetched or not.
apt_files() {
    apt_apart install -o Dir::Cache::archives="$apart/none" --print-uris "$@" | sed -n "s/^'[^']*' \([^ ]*\.deb\) .*/\1/p"
}

make_roots() {
    fetch_roots || { fetch_lists && fetch_roots; } || return 1
    printf '%s\n' "$missing_roots" | while read -r name packages; do
        step "Unpacking $name into $roots"
        # shellcheck disable=SC2086
        logged "root-$name" unpack_root "$roots/.$name.$$" $packages || {
            rm -rf "$roots/.$name.$$"
            return 1
        }
        printf '%s\n' "$roots_version $packages" >"$roots/.$name.$$/.made-of"
        rm -rf "${roots:?}/$name"
        # Somebody else may have made it meanwhile; one is as good as the other.
        mv -T "$roots/.$name.$$" "$roots/$name" 2>/dev/null || rm -rf "$roots/.$name.$$"
    done
}

# Each root's by itself: what one of several packages can do, another does for roots together.
fetch_roots() {
    bytes=$(for_roots apt_apart install --print-uris 2>/dev/null | sort -u | awk "/^'/ { sum += \$3 } END { print int(sum / 1e6) }")
    [ "${bytes:-0}" -gt 0 ] || return 1
    step "Fetching Debian packages that tests run, beside this system ($bytes MB, once)"
    for_roots logged roots-fetch apt_apart install --download-only
}

# Runs "$@" with the packages of each missing root, until one fails.
for_roots() {
    printf '%s\n' "$missing_roots" | while read -r name packages; do
        # shellcheck disable=SC2086  # lists of package names
        "$@" $roots_base $packages </dev/null || return 1
    done
}

# unpack_root FOLDER PACKAGE...: with the folders of a system whose /bin is /usr/bin, and the users
# that every Debian has. What nothing in a guest reads is left out.
unpack_root() {
    folder=$1
    shift
    for part in bin sbin lib lib64; do
        mkdir -p "$folder/usr/$part" && ln -s "usr/$part" "$folder/$part" || return 1
    done
    # shellcheck disable=SC2086
    files=$(apt_files $roots_base "$@") || return 1
    [ -n "$files" ] || return 1
    for file in $files; do
        dpkg-deb --fsys-tarfile "$apart/cache/archives/$file" \
            | tar -x -C "$folder" --keep-directory-symlink --no-same-owner --same-permissions \
                --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' \
                --exclude='./usr/share/locale/*' --exclude='./usr/share/lintian/*' \
                --exclude='./usr/lib/x86_64-linux-gnu/gconv/*' || return 1
    done
    for file in passwd group; do
        cp "$folder/usr/share/base-passwd/$file.master" "$folder/etc/$file" || return 1
    done
}

# ---- Sources whose tests are run

# What Debian made the package of the root `redis` of. In Debian's pool it lies beside the package.
redis_version=7.0.15
redis_sha256=4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982

# The tests of redis' source, for the nightly scenario that runs them. Nothing of it is compiled.
ready_redis_source() {
    case " $asked " in
        *" --nightly "* | *" redis-suite "*) ;;
        *) return 0 ;;
    esac
    ready_helper tclsh tcl "redis' own tests are not run"
    source="$PELAGO_CACHE/sources/redis"
    [ "$(cat "$source/.version" 2>/dev/null)" = "$redis_version" ] && return 0
    have apt-get && have dpkg-deb || return 0
    begin_apart
    fetch_redis_source || step "redis' source is missing: the test that uses it will say so"
    rm -rf "$apart" "$source.$$"
}

# The folder of the pool that a package is in.
pool_of() { apt_apart download --print-uris "$1" 2>/dev/null | sed -n "s/^'\(.*\)\/[^/]*' .*/\1/p"; }

fetch_redis_source() {
    pool=$(pool_of redis-server)
    [ -n "$pool" ] || { fetch_lists && pool=$(pool_of redis-server); } || return 1
    [ -n "$pool" ] || return 1
    file="redis_$redis_version.orig.tar.gz"
    step "Fetching redis' source for its tests (3 MB, once)"
    # apt's own, for it knows the machine's proxies, and compares the sum.
    logged redis-source /usr/lib/apt/apt-helper download-file "$pool/$file" "$apart/$file" "SHA256:$redis_sha256" || return 1
    mkdir -p "$source.$$"
    tar -xzf "$apart/$file" -C "$source.$$" --no-same-owner --strip-components=1 "redis-$redis_version/tests" || return 1
    printf '%s\n' "$redis_version" >"$source.$$/.version"
    rm -rf "$source"
    # Somebody else may have made it meanwhile; one is as good as the other.
    mv -T "$source.$$" "$source" 2>/dev/null || [ -d "$source" ]
}

# ---- The Linux guest that the bench measures beside us

# Debian's cloud kernel, unpacked, never installed; apt verifies what it downloads against the
# signed package lists. Where it is not to be had, the bench says so in its rows.
ready_peer() {
    PELAGO_LINUX="${PELAGO_LINUX:-$PELAGO_CACHE/linux}"
    export PELAGO_LINUX
    [ -d "$PELAGO_LINUX" ] && return 0
    have apt-get && have dpkg-deb || return 0
    refresh_package_lists linux-image-cloud-amd64
    # The package of that name only names the newest kernel's.
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
    [ -n "$package" ] || return 0
    step "Fetching Debian's $package into $PELAGO_CACHE (27 MB, once), to measure Linux beside us"
    folder="$PELAGO_CACHE/linux.$$"
    mkdir -p "$folder"
    if (cd "$folder" && logged linux apt-get download "$package" && logged linux dpkg-deb -x ./linux-image-*.deb .); then
        rm -f "$folder"/*.deb
        mv "$folder" "$PELAGO_LINUX"
    else
        rm -rf "$folder"
    fi
}

# ---- The disk image, and the second emulator that boots it

ready_image() {
    have grub-mkrescue && have xorriso && have mformat && [ -d /usr/lib/grub/i386-pc ] && return 0
    require_debian "grub-mkrescue" "install GRUB for BIOS machines, xorriso and mtools"
    install_packages "the boot loader of the disk image" grub-common grub-pc-bin xorriso mtools \
        || fail "the disk image needs a boot loader" "run as root: apt-get install grub-common grub-pc-bin xorriso mtools"
}

ready_bochs() {
    ready_image
    have bochs && [ -e /usr/share/bochs/VGABIOS-lgpl-latest ] && return 0
    require_debian "Bochs" "install it with your package manager"
    install_packages "the second emulator" bochs bochsbios vgabios \
        || fail "Bochs is missing" "run as root: apt-get install bochs bochsbios vgabios"
}

# machine_ready PART...: parts are `compiler`, `emulator`, `peer`, `tests`, `image` and `bochs`.
machine_ready() {
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] \
        || fail "this is $(uname -s) on $(uname -m); Pelago is built and run on Linux on x86-64" "use such a machine or VM"
    choose_cache
    for part in "$@"; do
        "ready_$part"
    done
}
