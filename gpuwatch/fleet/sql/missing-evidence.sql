-- Which required evidence was missing?
-- Shows what to repair so that windows can be proven.
-- since: 7d
SELECT hostname, proof, missing, count(*) AS windows_count
FROM (SELECT hostname, proof.proof, unnest(proof.missing) AS missing
      FROM (SELECT hostname, unnest(proofs) AS proof FROM windows
            WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until')) WHERE proof.state = 'unproven')
GROUP BY ALL ORDER BY windows_count DESC, hostname, proof, missing
