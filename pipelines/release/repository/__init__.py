"""Keep releases in a versioned model repository, on disk or in an object store: the files, and the log of them.

   <repository>/store/<model>/<version>/   manifest.json, evidence.json, reports, <variant>/...
   <repository>/log/<model>/000001.json    numbered records; the state is what they add up to
   <repository>/staging/                   on disk: releases being put together; nobody reads there

The files never change once published, and a folder there is a release only if the log has its record.
"""
