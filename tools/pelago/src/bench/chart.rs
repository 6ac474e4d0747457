//! Charts of papers' figures from our rows: `out/NAME.svg`, and a line of text with what the paper's figure shows.
//!
//! The papers give curves, not tables, so their shape stands beside ours in words. At more virtual processors than host cores a time shows
//! no shape; the coherence model (COHERENCE figures) has those.

use super::results::{Results, Row, Unit};
use anyhow::{Result, anyhow, ensure};
use plotters::prelude::*;

/// A curve.
pub struct Line {
    pub row: &'static str,
    pub label: &'static str,
}

/// What is drawn of a row at a number of cores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    /// Thousands of operations per second of all cores together.
    Throughput,
    /// As measured.
    PerOperation,
}

/// A paper's figure.
pub struct Figure {
    /// As it is asked for.
    pub name: &'static str,
    pub title: &'static str,
    pub lines: &'static [Line],
    axis: Axis,
    /// What the paper's shows.
    shape: &'static str,
}

/// Those whose rows exist.
pub const FIGURES: [Figure; 3] = [
    Figure {
        name: "corey.fig1",
        title: "Corey, figure 1: dup and close, each core its own descriptor",
        lines: &[
            Line { row: "dup-close/threads", label: "one table for all (threads)" },
            Line { row: "dup-close/processes", label: "a table each (processes)" },
        ],
        axis: Axis::Throughput,
        shape: "on Linux the total falls with the second core and goes on falling; separate tables would rise with the cores",
    },
    Figure {
        name: "corey.fig7",
        title: "Corey, figure 7a: memclone, first touch of each core's own pages",
        lines: &[
            Line { row: "page-touch/threads", label: "one address space (threads)" },
            Line { row: "page-touch/processes", label: "an address space each (processes)" },
        ],
        axis: Axis::PerOperation,
        shape: "time per page stays nearly flat with an address space each and on Corey, and rises with cores in one Linux address space",
    },
    Figure {
        name: "corey.fig8",
        title: "Corey, figure 8a: short TCP connections of 128 bytes (here over loopback)",
        lines: &[Line { row: "tcp-connections", label: "connections" }],
        axis: Axis::PerOperation,
        shape: "throughput rises with cores until the card is full, on Corey with fewer cores than on Linux",
    },
];

type Points = Vec<(f64, f64)>;

/// Draws it to `out/` and says where.
pub fn draw(figure: &Figure, results: &Results) -> Result<()> {
    let path = crate::place::out().join(format!("{}.svg", figure.name));
    crate::files::write(&path, render(figure, results)?.as_bytes())?;
    println!("{}: {}", figure.name, path.display());
    println!("  the paper's: {}", figure.shape);
    println!("  ours: {}", in_words(figure, results));
    Ok(())
}

/// Both systems' curves that have a point.
fn curves(figure: &Figure, results: &Results) -> Vec<(String, Points)> {
    let mut all = Vec::new();
    for line in figure.lines {
        for (system, of) in
            [("Pelago", (|row: &Row| row.ours.summary()) as fn(&Row) -> _), ("Linux", |row: &Row| row.linux.summary())]
        {
            let rows = results.rows.iter().filter(|row| row.name == line.row && row.unit != Unit::Instructions);
            let points: Points =
                rows.filter_map(|row| Some((f64::from(row.cpus), value(figure.axis, row.cpus, of(row)?.0)))).collect();
            if !points.is_empty() {
                all.push((format!("{system}, {}", line.label), points));
            }
        }
    }
    all
}

fn value(axis: Axis, cpus: u32, measured: f64) -> f64 {
    match axis {
        Axis::Throughput => f64::from(cpus) * 1e6 / measured,
        Axis::PerOperation => measured,
    }
}

fn in_words(figure: &Figure, results: &Results) -> String {
    let change = |points: &Points| match (points.first(), points.last()) {
        (Some(first), Some(last)) if first.0 < last.0 => {
            format!("{:.2} times from {} to {} cores", last.1 / first.1, first.0, last.0)
        }
        _ => "one number of cores only".into(),
    };
    let words: Vec<_> =
        curves(figure, results).iter().map(|(label, points)| format!("{label}: {}", change(points))).collect();
    words.join("; ")
}

fn render(figure: &Figure, results: &Results) -> Result<String> {
    let curves = curves(figure, results);
    ensure!(!curves.is_empty(), "there is no figure to draw; see why in the table above");
    let points = || curves.iter().flat_map(|(_, points)| points);
    let right = points().map(|point| point.0).fold(2.0, f64::max);
    let top = points().map(|point| point.1).fold(0.0, f64::max) * 1.1;
    let unit = match figure.axis {
        Axis::Throughput => "thousands per second, all cores",
        Axis::PerOperation => {
            let row = results.rows.iter().find(|row| figure.lines.iter().any(|line| line.row == row.name));
            row.map_or("", |row| row.unit.name())
        }
    };
    let mut text = String::new();
    {
        let drawn = |error: DrawingAreaErrorKind<_>| anyhow!("cannot draw: {error}");
        let area = SVGBackend::with_string(&mut text, (800, 500)).into_drawing_area();
        area.fill(&WHITE).map_err(drawn)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(figure.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..right, 0.0..top)
            .map_err(drawn)?;
        chart.configure_mesh().x_desc("cores").y_desc(unit).draw().map_err(drawn)?;
        for (index, (label, points)) in curves.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
            let drawn_line = chart.draw_series(line).map_err(drawn)?;
            drawn_line.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()
            .map_err(drawn)?;
        area.present().map_err(drawn)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::ENTRIES;
    use super::super::results::tests::{results, row};
    use super::*;

    #[test]
    fn every_curve_has_its_row() {
        let lines = FIGURES.iter().flat_map(|figure| figure.lines);
        lines.for_each(|line| assert!(ENTRIES.iter().any(|entry| entry.name == line.row), "{}", line.row));
    }

    #[test]
    fn a_chart_has_a_curve_for_each_system_that_has_points() {
        let all = results(vec![
            row("dup-close/threads", 1, &[], &[1000.0]),
            row("dup-close/threads", 2, &[], &[4000.0]),
            row("dup-close/processes", 1, &[2000.0], &[1000.0]),
        ]);
        let text = render(&FIGURES[0], &all).unwrap();
        assert!(text.contains("Linux, one table for all") && text.contains("Pelago, a table each"), "{text}");
        assert!(!text.contains("Pelago, one table"));
        assert!(
            in_words(&FIGURES[0], &all).contains("Linux, one table for all (threads): 0.50 times from 1 to 2 cores")
        );
        assert!(render(&FIGURES[1], &all).is_err());
    }
}
