//! Links the proxy at its own base, away from programs and native components.

fn main() {
    pelago_link::proxy();
}
