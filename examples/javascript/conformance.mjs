// Runs the conformance vectors: node examples/javascript/conformance.mjs conformance
// Prints every failure and a count; the exit code is 0 only if everything passed.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { compile, MapError, serveClasses, verifier } from './streamcal-map.mjs'

function fromHex(text) {
  const [, sign, lead, digits, exponent] = /^(-?)0x([01])\.([0-9a-f]+)p([+-]\d+)$/.exec(text)
  const mantissa = Number.parseInt(lead + digits, 16)
  // In two steps, lest the power alone fall below the smallest float64.
  const value = mantissa * 2 ** (-4 * digits.length) * 2 ** Number(exponent)
  return sign ? -value : value
}

function compiles(document, options) {
  try {
    return compile(document, options) !== null
  } catch (error) {
    if (error instanceof MapError) return false
    throw error
  }
}

const refusal = (item) => (compiles(item.document) ? `accepted although: ${item.why}` : null)

function wrongVerdict(item, accepts) {
  const accepted = compiles(item.document, { accepts, key: item.key })
  return accepted === item.accepted ? null : `${accepted ? 'accepted' : 'refused'} although: ${item.why}`
}

function difference(map, item, tolerance) {
  if (fromHex(item.score_hex) !== item.score) return `score ${item.score} is not ${item.score_hex}`
  if (fromHex(item.served_hex) !== item.served) return `served ${item.served} is not ${item.served_hex}`
  const served = map.apply(item.score, item.segments)
  const fits = Math.abs(served - item.served) <= tolerance * item.served
  const where = item.segments === undefined ? '' : ` in ${JSON.stringify(item.segments)}`
  return fits ? null : `score ${item.score}${where} is served as ${served}, not ${item.served}`
}

function classDifference(file, maps, item) {
  const served = serveClasses(file.classes, item.scores, maps, item.segments)
  const fits = served.every((p, i) => Math.abs(p - item.served[i]) <= file.relative_tolerance * item.served[i])
  return fits ? null : `scores ${item.scores} are served as ${served}, not ${item.served}`
}

function problemFinder(file) {
  if (file.kind === 'refused') return refusal
  if (file.kind === 'signed') {
    const accepts = verifier(file.keys)
    return (item) => wrongVerdict(item, accepts)
  }
  if (file.kind === 'classes') {
    const maps = new Map(Object.entries(file.documents).map(([name, text]) => [name, compile(text)]))
    return (item) => classDifference(file, maps, item)
  }
  if (file.kind !== 'apply') return () => `vectors of unknown kind ${file.kind}`
  const map = compile(file.document)
  return (item) => difference(map, item, file.relative_tolerance)
}

const folder = process.argv[2] ?? 'conformance'
let passed = 0
let total = 0
for (const name of readdirSync(folder).filter((file) => file.endsWith('.json')).sort()) {
  const file = JSON.parse(readFileSync(join(folder, name), 'utf8'))
  const problemOf = problemFinder(file)
  for (const item of file.items) {
    const problem = problemOf(item)
    total += 1
    if (problem === null) passed += 1
    else console.log(`${name}: ${problem}`)
  }
}
console.log(`${passed} of ${total} passed`)
process.exitCode = passed === total && total > 0 ? 0 : 1
